"""What verify can find, and what to do about each."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["REMEDIES", "Finding"]

_RESTORE = (
    "Restore the document from a backup, go on from an older checkpoint, or delete the thread."
)
_PRUNE = "Prune the thread: it goes with that."
_SETUP = "Make it: the command `indexes` says how. Or construct a saver, which does."
_DUPLICATES = "Delete all but one of them, then make the unique index."

REMEDIES = {
    # Checkpoints.
    "key": "Something else wrote this document: delete it.",
    "duplicate-checkpoint": _DUPLICATES,
    "layout-unknown": "A newer release wrote it: upgrade.",
    "layout-mixed": _RESTORE,
    "manifest": _RESTORE,
    "metadata": _RESTORE,
    "metadata-old": "A release before 0.2.2 wrote it: run upstream's migration script.",
    "state": _RESTORE,
    "id": _RESTORE,
    "loop": _RESTORE,
    "history-cut": _RESTORE,
    # What checkpoints name.
    "value-missing": _RESTORE,
    "value-size": _RESTORE,
    "value-version": _RESTORE,
    "piece-missing": _RESTORE,
    "piece-changed": _RESTORE,
    "pieces": _RESTORE,
    "part-missing": _RESTORE,
    "parts": _RESTORE,
    "bundle": _RESTORE,
    "stamp": (
        "It would expire while it is used: take `created_at` off the value, or resume the thread."
    ),
    # Values.
    "value": _RESTORE,
    "duplicate-value": _DUPLICATES,
    "value-unnamed": _PRUNE,
    "copy-unfinished": "A copy was ended by a crash: copy again, or delete the thread.",
    # Pending writes.
    "write": "Delete the pending writes of the task: it runs again when the thread is resumed.",
    "write-missing": (
        "Delete the pending writes of the task: it runs again when the thread is resumed."
    ),
    "write-partial": "Nothing: it does not count, and its task runs again.",
    "write-unnamed": _PRUNE,
    "duplicate-write": _DUPLICATES,
    # Marks.
    "doomed": "A removal was ended by a crash: prune the thread, or put to it.",
    "unproven": "A put was ended by a crash, and readers do not see it: prune the thread.",
    "retained": _PRUNE,
    "claimed": "A migration was ended by a crash, unless one is under way: migrate it again.",
    # Indexes.
    "index-missing": _SETUP,
    "index-not-unique": "Drop the one that is there, and make it: the command `indexes` says how.",
    "ttl": "Construct a saver with the TTL: the collections must expire alike.",
}
"""The kinds of what verify finds, and what to do."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong.

    Attributes:
        kind: What kind of thing, one of `REMEDIES`.
        what: What is wrong, in words.
        thread_id: The thread; empty for what is no thread's.
        checkpoint_ns: The namespace.
        checkpoint_id: The checkpoint; empty for what is no checkpoint's.
    """

    kind: str
    what: str
    thread_id: str = ""
    checkpoint_ns: str = ""
    checkpoint_id: str = ""

    @property
    def remedy(self) -> str:
        """What to do."""
        return REMEDIES[self.kind]
