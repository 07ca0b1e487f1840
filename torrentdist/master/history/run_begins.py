"""Begins a run of the history when hosts are told to fetch a bundle: finds which bundles they
have been told to keep since the last look.

Always: a run counts the hosts that the page of its bundle counts: those that had the bundle
before, those that still lack it, and those whose wave has not begun. The first look, and one
after which everything may have changed, costs a walk over the assignments. Any other costs as
much as there are changes.
Never: call a bundle new that was told before this master began to look; or do I/O.
"""

from collections.abc import Mapping, Sequence

import msgspec

from torrentdist.cluster.records.record_index import Follower
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.master.bundles.bundle_views import LISTED
from torrentdist.master.history import distribution_runs as runs
from torrentdist.master.history.distribution_runs import DistributionRun, KeptHistory
from torrentdist.model.ids import BundleId, SupervisorId

FRESH_SECS = 5.0
"""A run counts from the order of its distribution if that is at most this old, else from now."""


def later_hosts(snapshot: ClusterSnapshot, bundle: BundleId) -> Sequence[SupervisorId]:
    """Returns the hosts of all waves of a distribution that is not over."""
    order = snapshot.distributions.get(bundle)
    return () if order is None or order.record.is_over else order.record.hosts


def begun(
    kept: KeptHistory,
    snapshot: ClusterSnapshot,
    bundle: BundleId,
    hosts: list[SupervisorId],
    now: float,
    before: Mapping[SupervisorId, bool],
) -> KeptHistory:
    """Returns what is kept once these hosts are told to fetch a bundle. `before`: the hosts that
    were told earlier, and whether each has it."""
    entry = snapshot.bundles.get(bundle)
    if entry is None or entry.record.state not in LISTED:
        return kept
    running = next((run for run in kept.open.values() if run.bundle == bundle), None)
    record, began = entry.record, _ordered_at(kept, snapshot, bundle, now)
    others = [host for host in later_hosts(snapshot, bundle) if host not in before]
    run = running
    if run is None:
        run = DistributionRun(
            bundle=bundle, digest=record.digest, size=record.size, began_at=began, changed_at=now, hosts={},
            had=sum(before.values()),
        )  # fmt: skip
        others += [host for host, has in sorted(before.items()) if not has]
    return with_open(kept, kept.open | {run.id: runs.joined(run, [*hosts, *others], now)})


def with_open(kept: KeptHistory, open: dict[str, DistributionRun]) -> KeptHistory:
    return msgspec.structs.replace(kept, open=open)


def _ordered_at(kept: KeptHistory, snapshot: ClusterSnapshot, bundle: BundleId, now: float) -> float:
    """Returns when hosts were told to fetch a bundle: when its distribution was ordered, or now, if
    a job needs it or the distribution goes on after a run that is over."""
    entry = snapshot.distributions.get(bundle)
    ordered = now if entry is None else entry.record.begun_at
    is_new = all(past.bundle != bundle or (past.ended_at or 0.0) < ordered for past in kept.past.values())
    return ordered if is_new and now - FRESH_SECS <= ordered <= now else now


class ToldBundles:
    def __init__(self) -> None:
        self._follower = Follower()
        self._told: dict[SupervisorId, frozenset[BundleId]] | None = None

    def is_told(self, host: SupervisorId, bundle: BundleId) -> bool:
        """Whether a host was told to keep a bundle, at the last look."""
        return bundle in (self._told or {}).get(host, frozenset())

    def news(self, snapshot: ClusterSnapshot) -> Mapping[BundleId, list[SupervisorId]]:
        """Returns the bundles that were told since the last look, each with the hosts."""
        changes = self._follower.news(snapshot)
        now = snapshot.assignments
        looked = {*now, *(self._told or ())} if changes is None else changes.assignments
        first, told = self._told is None, self._told if self._told is not None else {}
        found: dict[BundleId, list[SupervisorId]] = {}
        for host in sorted(looked):
            before = told.pop(host, frozenset())
            if host in now:
                told[host] = frozenset(now[host].record.bundles)
                for bundle in () if first else sorted(told[host] - before):
                    found.setdefault(bundle, []).append(host)
        self._told = told
        return found
