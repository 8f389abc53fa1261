"""The states of a checkpoint, the marks in its document that tell them, and what readers see.

A checkpoint is absent, unproven, visible, doomed or retained. `STATES` says for each who
sets it, who clears it, who sees such a checkpoint, and what becomes of one that stays so
for an hour. `docs/design.md` has the same table; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from langgraph.checkpoint.mongodb._layout.keys import Document

__all__ = [
    "CLAIMED",
    "DOOMED",
    "PROVEN",
    "REKEYED",
    "RETAINED",
    "STATES",
    "UNPROVEN",
    "VISIBLE",
    "State",
    "is_visible",
]

DOOMED = "doomed"
"""Field of a checkpoint or a value that is being removed: the token of each removal."""

UNPROVEN = "unproven"
"""Field of a checkpoint whose put has not yet found its parent, or its values, stored."""

RETAINED = "retained"
"""Field of a checkpoint that was removed, and is only kept to rebuild delta channels from."""

REKEYED = "rekeyed"
"""Field of a checkpoint: when it has changed, the manifest that was read before is out of date.

It is changed by a put that gives its values other keys, because the parent is gone; and by a
removal of values to which no checkpoint refers: one that is just being put may refer to them.
"""

CLAIMED = "claimed"
"""Field of a whole checkpoint: the manifest that it is about to get. What that names stays."""

PROVEN: Document = {UNPROVEN: None}
"""The filter for what readers see by its id: a walk along parents visits retained ones, too."""

VISIBLE: Document = {**PROVEN, RETAINED: None}
"""The filter for what readers see."""


def is_visible(document: Mapping[str, Any]) -> bool:
    """Whether readers see a checkpoint, by the marks in its document."""
    return not any(document.get(mark) for mark in VISIBLE)


class State(NamedTuple):
    """A state of a checkpoint.

    Attributes:
        name: The state.
        stored: What the document says.
        set_by: Who brings a checkpoint into it.
        cleared_by: Who brings it out again.
        seen_by: Who finds such a checkpoint.
        after_an_hour: What becomes of one that stays so.
    """

    name: str
    stored: str
    set_by: str
    cleared_by: str
    seen_by: str
    after_an_hour: str


STATES = (
    State(
        "absent",
        "no document",
        "`delete_thread`, `prune`, `delete_for_runs`; a put that gives up",
        "a put, by writing the document",
        "nobody",
        "values and pending writes that a put stored before are deleted by the next `prune` or "
        "`delete_for_runs`",
    ),
    State(
        "unproven",
        "`unproven` is true",
        "a put whose checkpoint relies on its parent, or on values that it just stored",
        "the same put, when it has found them there",
        "`prune`, `delete_for_runs`; no reader, and no put as its parent",
        "was left by a crash: `prune` deletes it; a put that was only suspended stores it again",
    ),
    State(
        "visible",
        "none of the three marks",
        "a put: at once if the checkpoint relies on nothing, else when it is proven",
        "whoever removes it",
        "everybody",
        "stays as it is",
    ),
    State(
        "doomed",
        "`doomed` has the token of each removal; beside it the marks from before",
        "`prune`, `delete_for_runs`, before they delete",
        "a put that builds on it, for the whole namespace; the removal, for what is still needed",
        "readers as before; a put finds that its parent is being removed",
        "was left by a crash: it stops nobody, and the next removal deletes by a token of its own",
    ),
    State(
        "retained",
        "`retained` is true",
        "`prune`, `delete_for_runs`, instead of deleting what delta channels are rebuilt from",
        "nobody; a later one deletes it when nothing is rebuilt from it any more",
        "a walk along parents, and `get_tuple` by its id",
        "stays as long as something is rebuilt from it",
    ),
)
"""All states, in the order in which a checkpoint may pass through them."""
