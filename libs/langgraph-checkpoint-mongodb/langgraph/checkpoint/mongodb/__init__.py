"""MongoDB checkpointers for LangGraph."""

from langgraph.checkpoint.mongodb.aio import AsyncMongoDBSaver
from langgraph.checkpoint.mongodb.errors import (
    ChannelTooLargeError,
    CheckpointTooLargeError,
    DamagedCheckpointError,
    MissingChannelValueError,
    MongoDBSaverError,
    OldMetadataError,
    UnknownLayoutError,
)
from langgraph.checkpoint.mongodb.saver import MongoDBSaver

__all__ = [
    "AsyncMongoDBSaver",
    "ChannelTooLargeError",
    "CheckpointTooLargeError",
    "DamagedCheckpointError",
    "MissingChannelValueError",
    "MongoDBSaver",
    "MongoDBSaverError",
    "OldMetadataError",
    "UnknownLayoutError",
]
