"""How a put stores a checkpoint in the split layout: plan, measure, write values, commit.

`commit` explains what makes that safe while other processes remove checkpoints.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from bson import ObjectId
from langgraph.checkpoint.base import ChannelVersions, Checkpoint

from langgraph.checkpoint.mongodb._layout.bundle import BUNDLE
from langgraph.checkpoint.mongodb._layout.checkpoint import (
    ALL_FIELDS,
    CheckpointInfo,
    parent_id_of,
    parent_key_of,
)
from langgraph.checkpoint.mongodb._layout.codec import explained
from langgraph.checkpoint.mongodb._layout.keys import (
    VALUE_KEY,
    CheckpointKey,
    Document,
    ValueKey,
    value_queries,
)
from langgraph.checkpoint.mongodb._layout.layouts import SPLIT
from langgraph.checkpoint.mongodb._layout.plan import plan_put
from langgraph.checkpoint.mongodb._layout.put_plan import PutPlan
from langgraph.checkpoint.mongodb._layout.states import DOOMED, REKEYED, VISIBLE
from langgraph.checkpoint.mongodb._layout.ttl import value_stamp
from langgraph.checkpoint.mongodb._layout.values import values_by_channel, version_text
from langgraph.checkpoint.mongodb._operations.commit import Committed, commit
from langgraph.checkpoint.mongodb._operations.conflict import ATTEMPTS, give_up, parent_again
from langgraph.checkpoint.mongodb._operations.context import Context
from langgraph.checkpoint.mongodb._operations.fetching import read_values, small_values
from langgraph.checkpoint.mongodb._operations.measuring import measured, size_of
from langgraph.checkpoint.mongodb._operations.memory import InputInFlight
from langgraph.checkpoint.mongodb._operations.renewal import restamp

__all__ = ["SplitPut"]

# A put that takes longer was probably suspended: then it checks again what it relies on.
_LATE = timedelta(minutes=5)


class SplitPut:
    """One put in the split layout.

    Args:
        context: What the call works with.
        key: The checkpoint's key.
        checkpoint: The checkpoint.
        rebuilt: Its delta channels that only its ancestors hold, with their versions.
        fields: Those fields of its document that do not depend on the channel values.
        new_versions: The channels that the step wrote.
        began: When it began, by the server's time.
    """

    def __init__(
        self,
        context: Context,
        key: CheckpointKey,
        checkpoint: Checkpoint,
        rebuilt: Mapping[str, str],
        fields: Document,
        new_versions: ChannelVersions,
        began: datetime,
    ) -> None:
        self.began = began
        self.context, self.key, self.checkpoint = context, key, checkpoint
        self.fields, self.new_versions = fields, new_versions
        self.values = values_by_channel(checkpoint)
        self.rebuilt = rebuilt

    async def store(self, parent: CheckpointInfo, in_flight: InputInFlight | None) -> None:
        """Write the checkpoint; again, with private keys, if its parent was removed meanwhile.

        Args:
            parent: What is known of the parent.
            in_flight: What pending writes of this process may wait for, None if they need not.
        """
        private: set[str] = set()
        created, salt = False, 0
        for attempt in range(ATTEMPTS):
            is_last = attempt + 1 == ATTEMPTS
            if parent_id_of(self.fields) and not parent.exists:
                self.fields[REKEYED] = ObjectId()
            plan = await self._plan(parent, private, salt)
            if in_flight is not None:
                in_flight.decide(plan.digests)
            stamp = self._value_stamp()
            documents = await measured(self.context, self.key, plan, self.fields, stamp)
            taken = await self._write_values(documents, again=attempt > 0)
            if await self._is_another(plan, documents, taken) and not is_last:
                salt += 1
                continue
            stamped = await self._stamp(plan, taken, parent)
            if late := await self._is_late():
                stamped = await self._stamp_again(plan)
            done = await self._commit(plan, parent, checking=late or bool(taken))
            created |= done.created
            if done.proven:
                self._remember(plan, stamped)
                return
            parent = await self._parent_again(plan, parent, created=created, is_last=is_last)
            if not parent.exists:
                private |= {entry.channel for entry in plan.carried}

    async def _parent_again(
        self, plan: PutPlan, before: CheckpointInfo, *, created: bool, is_last: bool
    ) -> CheckpointInfo:
        """The parent as it is now, for another attempt.

        Raises:
            MissingChannelValueError: It is gone, and with it what is not at hand; or this was
                the last attempt.
        """
        parent = await parent_again(self.context, self.key, self.fields, self.rebuilt)
        lost = {} if parent.exists else self._not_in_hand(plan)
        if lost or is_last:
            lost = lost or {entry.channel: entry.holds for entry, _ in plan.written}
            await give_up(self.context, self.key, created, lost)
        if parent.exists:
            return parent
        return replace(parent, inline=before.inline, kept=self._kept(plan))

    def _kept(self, plan: PutPlan) -> dict[str, Any]:
        """The inline values of channels that this graph does not know."""
        return {name: plan.inline[name] for name in plan.inline.keys() - self.values.keys()}

    def _remember(self, plan: PutPlan, stamped: datetime | None) -> None:
        versions = self.checkpoint.get("channel_versions") or {}
        info = CheckpointInfo(
            SPLIT,
            plan.manifest(),
            stamped,
            digests=plan.digests,
            rekeyed=self.fields.get(REKEYED),
            growths=plan.growths,
            bundle=plan.bundle,
            wrote=frozenset(self.new_versions),
            recent=frozenset(plan.recent),
            inline={name: version_text(versions.get(name)) for name in plan.inline},
            kept=self._kept(plan),
            rebuilt=frozenset(self.rebuilt),
        )
        self.context.memory.remember(self.key, info)

    async def _plan(self, parent: CheckpointInfo, private: Collection[str], salt: int) -> PutPlan:
        plan = await self._plan_once(parent, private, salt)
        if plan.unknown:
            # The thread has a channel that this graph does not know: its value is kept.
            kept = await self._read_of_parent(plan.unknown)
            parent = replace(parent, kept={**parent.kept, **kept})
            plan = await self._plan_once(parent, private, salt)
        if plan.unknown:
            await self._lost(plan.unknown)
        return plan

    async def _plan_once(
        self, parent: CheckpointInfo, private: Collection[str], salt: int
    ) -> PutPlan:
        codec, checkpoint = self.context.codec, self.checkpoint

        @explained(codec, self.values.items(), self.key.thread_id)
        def plan() -> PutPlan:
            plan = plan_put(codec, checkpoint, self.new_versions, parent, private, salt)
            manifest = plan.manifest().values()
            self.fields |= SPLIT.fields(
                codec, checkpoint, manifest, plan.inline, plan.growths, plan.bundle
            )
            return plan

        return await self.context.io.offload(size_of(self.values), plan)

    async def _read_of_parent(self, channels: Sequence[str]) -> dict[str, Any]:
        """Read values of the parent that lie inline or in its bundle, as far as they do.

        Raises:
            MissingChannelValueError: The parent is gone, or its bundle.
        """
        parent = parent_key_of(self.key, self.fields)
        query = {**parent.query(), **VISIBLE}
        found = await self.context.io.find("checkpoints", query, ALL_FIELDS, limit=1, primary=True)
        if not found:
            await self._lost(channels)
        values = await small_values(self.context, found[0])
        return {channel: values[channel] for channel in channels if channel in values}

    async def _lost(self, channels: Iterable[str]) -> None:
        versions = self.checkpoint["channel_versions"]
        lost = {channel: version_text(versions[channel]) for channel in channels}
        await give_up(self.context, self.key, False, lost)

    def _value_stamp(self) -> datetime | None:
        if self.context.ttl is None:
            return None
        return value_stamp(self.context.ttl, self.fields["created_at"])

    async def _is_another(
        self, plan: PutPlan, documents: Sequence[Document], taken: Collection[ValueKey]
    ) -> bool:
        """Whether a new piece has the number of a stored piece with other contents."""
        if not taken:
            return False
        pieces = {entry.channel for entry, _ in plan.written if entry.pieces is not None}
        values = {ValueKey.of(document): document["value"] for document in documents}
        ours = {key: values[key] for key in taken if key.channel in pieces}
        stored = await read_values(self.context, ours, primary=True)
        return any(key in stored and stored[key]["value"] != value for key, value in ours.items())

    async def _write_values(self, documents: list[Document], *, again: bool) -> list[ValueKey]:
        """Write the values; return those that were there already.

        Pending writes may refer to them already. So they keep their keys when they are written
        `again`, and the marks of a removal are taken off.
        """
        places = await self.context.io.insert("values", documents) if documents else []
        taken = [ValueKey.of(documents[place]) for place in places]
        for query in value_queries(taken if again else ()):
            await self.context.io.update_many("values", query, {"$unset": {DOOMED: ""}})
        return taken

    async def _stamp(
        self, plan: PutPlan, taken: Sequence[ValueKey], parent: CheckpointInfo
    ) -> datetime | None:
        """Renew the stamps of values that were there already; return the oldest stamp then."""
        oldest = stamp = self._value_stamp()
        renewed = [*taken]
        if plan.carried and parent.stamped is not None:
            if stamp is None or parent.stamped < self.fields["created_at"]:
                renewed += [key for entry in plan.carried for key in entry.keys(self.key)]
            else:
                oldest = parent.stamped
        await restamp(self.context, renewed, stamp)
        return oldest

    async def _is_late(self) -> bool:
        """Whether it took so long that it was suspended, probably, since it began."""
        now = await self.context.io.now()
        late = now - self.began > _LATE
        if late:
            self.began = now
        return late

    async def _stamp_again(self, plan: PutPlan) -> datetime | None:
        """Renew the stamps that are as old as the beginning; return that of the values."""
        if self.context.ttl is not None:
            self.fields["created_at"] = self.began
            keys = [key for entry in plan.manifest().values() for key in entry.keys(self.key)]
            await restamp(self.context, keys, self._value_stamp())
        return self._value_stamp()

    async def _commit(self, plan: PutPlan, parent: CheckpointInfo, *, checking: bool) -> Committed:
        parent_key = None
        if parent.exists and (self.rebuilt or plan.carried or plan.written):
            parent_key = parent_key_of(self.key, self.fields)
        # The parent tells of a removal of what was written since it was read, not of what was
        # written before, or has expired; and where there is none, nothing tells.
        checking = bool(plan.written) and (checking or parent_key is None)
        return await commit(
            self.context,
            self.key,
            self.fields,
            relies_on=parent_key,
            rekeyed=parent.rekeyed,
            complete=partial(self._all_stored, plan) if checking else None,
        )

    async def _all_stored(self, plan: PutPlan) -> bool:
        """Whether the written values exist, and are not being removed."""
        wanted = {key for entry, _ in plan.written for key in entry.keys(self.key)}
        fields = {"_id": 0, **dict.fromkeys(VALUE_KEY, 1)}
        found = {
            ValueKey.of(document)
            for query in value_queries(wanted)
            for document in await self.context.io.find(
                "values", {**query, DOOMED: None}, fields, primary=True
            )
        }
        return found == wanted

    def _not_in_hand(self, plan: PutPlan) -> dict[str, str]:
        """What the checkpoint would lack without its parent, by channel."""
        carried = {entry.channel: entry.holds for entry in plan.carried}
        carried.pop(BUNDLE, None)
        if plan.bundle:
            carried |= plan.bundle.live
        unknown = {
            channel: version for channel, version in carried.items() if channel not in self.values
        }
        return {**unknown, **self.rebuilt}
