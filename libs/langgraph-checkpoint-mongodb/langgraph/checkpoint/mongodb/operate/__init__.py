"""What whoever runs the database asks and does: the same as the command line tool, from Python.

Each function takes a `MongoDBSaver`, which names database, collections and serializer, and
returns dataclasses. Reads go where the saver's client sends them, a secondary for example. No
value is made into an object, so the application's classes are not needed, except by `migrate`.

Example:
    ```python
    from datetime import timedelta

    from langgraph.checkpoint.mongodb import MongoDBSaver, operate

    with MongoDBSaver.from_conn_string(uri, create_indexes=False) as saver:
        print(operate.stats(saver).largest_threads[0])
        operate.prune(saver, keep_last=5, idle=timedelta(days=90))
        damaged = [*operate.verify(saver)]
    ```
"""

from langgraph.checkpoint.mongodb.operate._indexes import IndexState, indexes
from langgraph.checkpoint.mongodb.operate._migrate import Migrated, migrate
from langgraph.checkpoint.mongodb.operate._prune import Pruned, prune
from langgraph.checkpoint.mongodb.operate._show import CheckpointNode, ThreadTree, show
from langgraph.checkpoint.mongodb.operate._stats import (
    Bucket,
    ChannelSize,
    CollectionSize,
    Day,
    Stats,
    ThreadSize,
    stats,
)
from langgraph.checkpoint.mongodb.operate._verify import Finding, Verified, verify

__all__ = [
    "Bucket",
    "ChannelSize",
    "CheckpointNode",
    "CollectionSize",
    "Day",
    "Finding",
    "IndexState",
    "Migrated",
    "Pruned",
    "Stats",
    "ThreadSize",
    "ThreadTree",
    "Verified",
    "indexes",
    "migrate",
    "prune",
    "show",
    "stats",
    "verify",
]
