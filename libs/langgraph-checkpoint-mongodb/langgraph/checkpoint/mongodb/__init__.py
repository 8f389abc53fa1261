"""MongoDB checkpointers for LangGraph."""

from langgraph.checkpoint.mongodb.aio import AsyncMongoDBSaver
from langgraph.checkpoint.mongodb.errors import (
    ChannelTooLargeError,
    CheckpointTooLargeError,
    MissingChannelValueError,
    MongoDBSaverError,
    UnknownLayoutError,
)
from langgraph.checkpoint.mongodb.saver import MongoDBSaver

__all__ = [
    "AsyncMongoDBSaver",
    "ChannelTooLargeError",
    "CheckpointTooLargeError",
    "MissingChannelValueError",
    "MongoDBSaver",
    "MongoDBSaverError",
    "UnknownLayoutError",
]
