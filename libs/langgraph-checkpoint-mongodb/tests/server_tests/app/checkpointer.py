"""The saver, as `langgraph.json` names it: the server enters it once for each event loop."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from langgraph.checkpoint.mongodb import AsyncMongoDBSaver


@asynccontextmanager
async def checkpointer() -> AsyncIterator[AsyncMongoDBSaver]:
    """Make the saver on the database that the environment names."""
    uri, name = os.environ["MONGODB_URI"], os.environ["MONGODB_DATABASE"]
    async with AsyncMongoDBSaver.from_conn_string(uri, name) as saver:
        yield saver
