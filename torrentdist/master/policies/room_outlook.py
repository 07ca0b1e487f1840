"""Tells for each bundle whether it is removed next when room is needed, and why, or why it stays.

Always: it says what retention_rules.py and pruning.py decide, and decides nothing itself. The rules
are judged in a thread, and at most once for the same records within VALID_SECS.
"""

import asyncio
import math
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from torrentdist.cluster.records.record_index import RecordIndex
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.master.bundles.pruning import uses_of
from torrentdist.master.policies.retention_rules import Retained, retained
from torrentdist.master.reads.saved_records import Records
from torrentdist.model.ids import BundleId
from torrentdist.model.policies.policy_messages import RoomView

VALID_SECS: Final = 10.0
"""How long a result is used while no record changes. Rules depend on the age of bundles, too."""


class RoomOutlook:
    def __init__(self, records: Records) -> None:
        self._records = records
        self._turn = threading.Lock()
        self._index = RecordIndex()
        self._judged: dict[str, Retained] = {}
        self._version = -1
        self._valid_until = -math.inf

    async def of(self, seen: ClusterSnapshot, bundles: Sequence[BundleId]) -> dict[BundleId, RoomView]:
        """Returns what is known of these bundles; nothing while ZooKeeper's clock is not known. It
        names only the rules that are `seen`."""
        snapshot, now = self._records.snapshot(), self._records.server_now()
        if now is None:
            return {}
        views = await asyncio.to_thread(self._views, snapshot, bundles, now)
        named = {entry.record.pattern for entry in seen.retention.values()}
        return {id_: _without(view, [rule for rule in view.rules if rule not in named]) for id_, view in views.items()}

    def _views(self, snapshot: ClusterSnapshot, bundles: Sequence[BundleId], now: float) -> dict[BundleId, RoomView]:
        with self._turn:
            self._index.follow(snapshot)
            if snapshot.version != self._version or time.monotonic() >= self._valid_until:
                rules = {entry.record.pattern: entry.record for entry in snapshot.retention.values()}
                self._judged = retained(snapshot, rules, now, self._index)
                self._version, self._valid_until = snapshot.version, time.monotonic() + VALID_SECS
            return {id_: room_view(snapshot, id_, self._judged, self._index) for id_ in bundles}


def _without(view: RoomView, hidden: Sequence[str]) -> RoomView:
    """Returns the view without rules that its reader may not see."""
    shown = [rule for rule in view.rules if rule not in hidden]
    return replace(view, rules=shown, goes="a rule applies" if view.goes and hidden else view.goes)


def room_view(
    snapshot: ClusterSnapshot, bundle: BundleId, judged: Mapping[str, Retained], index: RecordIndex
) -> RoomView:
    """Returns what the rules do with one bundle.

    `judged`: what each rule removes and keeps, by its pattern. `index`: the index of this snapshot.
    """
    matching = {
        pattern: said for pattern, said in sorted(judged.items()) if bundle in said.goes or bundle in said.stays
    }
    keep = [reason for said in matching.values() for reason in said.stays.get(bundle, ()) if reason != "other_rule"]
    goes = next((said.goes[bundle] for said in matching.values() if bundle in said.goes), "")
    last_copies = () if snapshot.holders(bundle) else ("no_master",)
    return RoomView(
        rules=list(matching),
        goes=goes,
        rules_keep=list(dict.fromkeys(keep)),
        stays=[*uses_of(snapshot, bundle, index), *last_copies],
    )
