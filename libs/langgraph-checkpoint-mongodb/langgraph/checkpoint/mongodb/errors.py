"""What can go wrong in the savers themselves; driver errors pass through untouched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pymongo.errors import DocumentTooLarge

__all__ = [
    "ChannelTooLargeError",
    "CheckpointTooLargeError",
    "MissingChannelValueError",
    "MongoDBSaverError",
    "UnknownLayoutError",
]


class MongoDBSaverError(Exception):
    """Root of the errors that the savers raise for facts of their own."""

    _facts: tuple[Any, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        # The default rebuilds from the message alone; these are made from facts.
        return type(self), self._facts


class ChannelTooLargeError(MongoDBSaverError, DocumentTooLarge):
    """One channel value, or one pending write, does not fit into one document.

    Raised before anything is written.

    Attributes:
        channel: The channel whose value is too large.
        size: Bytes of the document that would have been stored.
        limit: The server's `maxBsonObjectSize`, in bytes.
        where: Which document, in words.
    """

    def __init__(self, channel: str, size: int, limit: int, where: str) -> None:
        self._facts = (channel, size, limit, where)
        self.channel, self.size, self.limit, self.where = self._facts
        super().__init__(
            f"Channel {channel!r} is too large: {where} would be {size:,} bytes, "
            f"and this server stores at most {limit:,} in one document. Nothing was "
            "written. Split the value over several channels, or keep it elsewhere "
            "(object storage, GridFS) and put a reference into the state."
        )


class CheckpointTooLargeError(MongoDBSaverError, DocumentTooLarge):
    """A checkpoint does not fit into one document for a reason that is no single channel.

    Raised before anything is written.

    Attributes:
        what: What is large: the metadata, say, or the number of channels.
        size: Bytes of the document that would have been stored.
        limit: The server's `maxBsonObjectSize`, in bytes.
        checkpoint_id: The checkpoint that was to be stored.
    """

    def __init__(self, what: str, size: int, limit: int, checkpoint_id: str) -> None:
        self._facts = (what, size, limit, checkpoint_id)
        self.what, self.size, self.limit, self.checkpoint_id = self._facts
        super().__init__(
            f"Checkpoint {checkpoint_id!r} is too large: its document would be {size:,} "
            f"bytes, and this server stores at most {limit:,}. Most of it is {what}. "
            "Nothing was written. Store less of that; a thread that an older release began, "
            "whose layout keeps all channel values together, is moved into the new layout by "
            "saver.migrate_thread(thread_id), and goes on then."
        )


MissingCause = Literal["value lost", "history cut", "removed while read", "deleted while written"]
"""Why something that a checkpoint needs is not stored; see `MissingChannelValueError`."""

_WHAT_HAPPENED: dict[MissingCause, str] = {
    "value lost": (
        "cannot be read: {missing} not found. Something other than this library deleted the "
        "value, or its collection was left out of a restore. Restore it, or go on from an older "
        "checkpoint of the thread."
    ),
    "history cut": (
        "cannot be read: the older checkpoints that {missing} is rebuilt from are gone. "
        "Something other than this library deleted them, or they expired. Restore them, or go "
        "on from an older checkpoint of the thread."
    ),
    "removed while read": (
        "was removed while it was read: {missing} is incomplete. If that was meant, nothing is "
        "to be done; otherwise read the thread again, or go on from an older checkpoint."
    ),
    "deleted while written": (
        "cannot be stored: the thread, or the checkpoint that this one follows, was deleted "
        "meanwhile, and {missing} with it. If that was meant, nothing is to be done; otherwise "
        "start the run again, or go on from an older checkpoint."
    ),
}


class MissingChannelValueError(MongoDBSaverError):
    """What a checkpoint refers to, or is rebuilt from, is no longer stored.

    The state is never returned, nor a checkpoint stored, without it: a state with a hole
    looks like a valid one.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: The namespace.
        checkpoint_id: The checkpoint that refers to the values.
        missing: The `(channel, version)` pairs that were not found. For a delta channel whose
            history is cut, the second is where the cut is, in words; for a checkpoint that
            was removed while it was read, it is empty.
        cause: `"value lost"`: a value document is gone. `"history cut"`: ancestors are gone
            from which a delta channel is rebuilt. `"removed while read"`: the checkpoint was
            removed in the middle of the call. `"deleted while written"`: the thread, or the
            parent of the checkpoint that was to be stored, was deleted.
    """

    def __init__(
        self,
        thread_id: str,
        checkpoint_ns: str,
        checkpoint_id: str,
        missing: Sequence[tuple[str, str]],
        cause: MissingCause = "value lost",
    ) -> None:
        self._facts = (thread_id, checkpoint_ns, checkpoint_id, list(missing), cause)
        self.thread_id = thread_id
        self.checkpoint_ns = checkpoint_ns
        self.checkpoint_id = checkpoint_id
        self.missing = list(missing)
        self.cause = cause
        names = ", ".join(
            f"{channel!r} ({version})" if version else repr(channel) for channel, version in missing
        )
        super().__init__(
            f"Checkpoint {checkpoint_id!r} of thread {thread_id!r} (namespace "
            f"{checkpoint_ns!r}) {_WHAT_HAPPENED[cause].format(missing=names)}"
        )


class UnknownLayoutError(MongoDBSaverError):
    """A checkpoint was written by a newer release in a layout this one does not know.

    Attributes:
        layout: The document's `layout`.
        thread_id: The thread.
        checkpoint_id: The checkpoint.
    """

    def __init__(self, layout: object, thread_id: str, checkpoint_id: str) -> None:
        self._facts = (layout, thread_id, checkpoint_id)
        self.layout, self.thread_id, self.checkpoint_id = self._facts
        super().__init__(
            f"Checkpoint {checkpoint_id!r} of thread {thread_id!r} has layout {layout!r}, "
            "which this release does not know. Upgrade langgraph-checkpoint-mongodb."
        )


class OldMetadataError(MongoDBSaverError):
    """A release before 0.2.2 wrote a checkpoint, whose metadata has another form."""

    def __init__(self) -> None:
        super().__init__(
            "A release of langgraph-checkpoint-mongodb before 0.2.2 wrote this checkpoint; its "
            "metadata has a form that releases from 0.2.2 on cannot read. Convert the collection "
            "with scripts/migrate_checkpoints_to_typed_metadata.py of "
            "langchain-ai/langchain-mongodb (libs/langgraph-checkpoint-mongodb)."
        )


class DamagedCheckpointError(MongoDBSaverError):
    """The manifest of a checkpoint document is not one that this library writes.

    Attributes:
        checkpoint_id: The checkpoint, empty where it is not known.
        what: What is wrong.
    """

    def __init__(self, checkpoint_id: str, what: str) -> None:
        self._facts = (checkpoint_id, what)
        self.checkpoint_id, self.what = self._facts
        super().__init__(
            f"Checkpoint {checkpoint_id!r} is damaged: {what}. Something other than this library "
            "changed the document. Restore it, or go on from an older checkpoint of the thread."
        )
