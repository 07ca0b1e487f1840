"""Decides which bundles the retention rules remove, and why the others stay. Pure.

A rule says how many versions of a bundle the cluster keeps, such as the newest 5 of `etl-*` and
those of the last 30 days. A bundle goes only if every rule that matches it lets it go. Only
available versions count: an upload that is under way, or a lost bundle, replaces none of them.
Always: a bundle stays if it is pinned, unavailable, needed by a live job, under distribution,
wanted by a standing order or promised to hosts for a time; or if a damaged record may say so; or if
another bundle that stays has the same content and no holder of its own. Ages are by ZooKeeper's
clock.
"""

import re
import sys
from bisect import bisect_left
from collections.abc import Mapping
from fnmatch import fnmatchcase

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.records.record_index import RecordIndex
from torrentdist.cluster.records.snapshot import BundleEntry, ClusterSnapshot
from torrentdist.model.ids import BundleId
from torrentdist.model.policies.retention_record import RetentionRecord
from torrentdist.model.records import BundleState

_WILD = re.compile(r"[*?[]")
"""Splits a pattern. The first part stands for itself."""
_LAST = chr(sys.maxunicode)


class Retained(msgspec.Struct, frozen=True):
    """The bundles that match a rule."""

    goes: Mapping[BundleId, str] = msgspec.field(default_factory=dict)
    """The bundles that are removed, and why."""
    stays: Mapping[BundleId, tuple[str, ...]] = msgspec.field(default_factory=dict)
    """The bundles that stay, and why."""


def retained(
    snapshot: ClusterSnapshot, rules: Mapping[str, RetentionRecord], now: float, index: RecordIndex | None = None
) -> dict[str, Retained]:
    """Returns, for each rule, what goes and what stays under all of these rules together.

    `index`: of this snapshot, if there is one.
    """
    if not rules:
        return {}
    index = index or RecordIndex.of(snapshot)
    ids = sorted(snapshot.bundles)
    matching = {name: _matching(snapshot, ids, rule) for name, rule in rules.items()}
    kept: dict[BundleId, dict[str, tuple[str, ...]]] = {}
    for name, rule in rules.items():
        rank = 0
        for entry in matching[name]:
            kept.setdefault(entry.record.id, {})[name] = _kept_by(rule, rank, entry, now)
            rank += entry.record.state is BundleState.AVAILABLE
    uses = {id_: _uses(snapshot, snapshot.bundles[id_], index) for id_ in kept}
    going = {id_ for id_, by_rule in kept.items() if not uses[id_] and not any(by_rule.values())}
    needed = _last_copies(snapshot, going, index)
    return {
        name: _verdict(rule, matching[name], kept, uses, going - needed, needed, name) for name, rule in rules.items()
    }


def doomed(snapshot: ClusterSnapshot, now: float, index: RecordIndex | None = None) -> list[BundleId]:
    """Returns the bundles that the rules of the cluster remove now."""
    rules = {name: entry.record for name, entry in snapshot.retention.items()}
    return sorted({id_ for some in retained(snapshot, rules, now, index).values() for id_ in some.goes})


def _matching(snapshot: ClusterSnapshot, ids: list[BundleId], rule: RetentionRecord) -> list[BundleEntry]:
    """Returns the bundles that match, the newest first. `ids` are those of all bundles, sorted."""
    found = [
        entry
        for id_ in _beginning_with(ids, _WILD.split(rule.pattern)[0])
        if (entry := snapshot.bundles[id_]).record.state is not BundleState.REMOVED and fnmatchcase(id_, rule.pattern)
    ]
    return sorted(found, key=lambda entry: (-entry.record.created_at, entry.record.id))


def _beginning_with(ids: list[BundleId], prefix: str) -> list[BundleId]:
    """Returns a part of a sorted list without looking at the rest of it."""
    return ids[bisect_left(ids, prefix) : bisect_left(ids, prefix + _LAST)]


def _kept_by(rule: RetentionRecord, rank: int, entry: BundleEntry, now: float) -> tuple[str, ...]:
    newest = ("newest",) if rank < rule.keep and entry.record.state is BundleState.AVAILABLE else ()
    return (*newest, "young") if now - entry.mtime < rule.for_secs else newest


def _uses(snapshot: ClusterSnapshot, entry: BundleEntry, index: RecordIndex) -> tuple[str, ...]:
    record = entry.record
    order = snapshot.distributions.get(record.id)
    holds = {
        "pinned": record.pinned,
        "unavailable": record.state is not BundleState.AVAILABLE,
        "needed": bool(index.live_jobs_of(record.id)),
        "unreadable": may_be_needed(snapshot, record.id),
        **({} if order is None else order.record.claims),
    }
    return tuple(reason for reason, applies in holds.items() if applies)


def may_be_needed(snapshot: ClusterSnapshot, bundle: BundleId) -> bool:
    """Whether a record that may need this bundle cannot be read: that of any job, or that of its
    distribution."""
    own = paths.distribution(bundle)
    return any(path == own or paths.parent(path) == paths.JOBS for path in snapshot.damaged)


def _last_copies(snapshot: ClusterSnapshot, going: set[BundleId], index: RecordIndex) -> set[BundleId]:
    """Returns those of the bundles whose copies another bundle lives on."""
    found: set[BundleId] = set()
    for digest in {snapshot.bundles[id_].record.digest for id_ in going}:
        twins = [snapshot.bundles[id_] for id_ in index.bundles_of(digest)]
        staying = (t for t in twins if t.record.id not in going and t.record.state is not BundleState.REMOVED)
        if any(not snapshot.holders(twin.record.id) for twin in staying):
            found.update(twin.record.id for twin in twins if twin.record.id in going)
    return found


def _verdict(
    rule: RetentionRecord,
    matching: list[BundleEntry],
    kept: Mapping[BundleId, Mapping[str, tuple[str, ...]]],
    uses: Mapping[BundleId, tuple[str, ...]],
    going: set[BundleId],
    needed: set[BundleId],
    name: str,
) -> Retained:
    why = f"{rule.keep} newer {'one matches' if rule.keep == 1 else 'ones match'} {rule.pattern}"
    goes = {entry.record.id: why for entry in matching if entry.record.id in going}
    stays = {}
    for entry in matching:
        id_ = entry.record.id
        if id_ not in going:
            own = (*kept[id_][name], *uses[id_], *(("last_copy",) if id_ in needed else ()))
            stays[id_] = own or ("other_rule",)
    return Retained(goes, stays)
