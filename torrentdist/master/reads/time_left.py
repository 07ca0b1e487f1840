"""Estimates when a distribution is over: from what has to be sent, in waves.

Always: hosts whose wave has not begun count with all their bytes, at the pace of the waves so far.
What nobody can know is None, never zero.
Pure: functions of values.
"""

from collections.abc import Iterable

import msgspec

from torrentdist.cluster.records.snapshot import DistributionEntry
from torrentdist.master.policies.wave_plan import current_wave, waves
from torrentdist.model.wire.fleet_messages import FleetView, HostProgress, HostState


def with_time_left(fleet: FleetView, order: DistributionEntry | None, now: float) -> FleetView:
    """Returns the fleet with the wave that is under way and the seconds until all hosts have the
    bundle. `now` is by ZooKeeper's clock."""
    if order is None or order.record.is_over:
        return msgspec.structs.replace(fleet, time_left=_longest(fleet.hosts))
    record = order.record
    later = [host for host in fleet.hosts if host.is_later]
    told = {host.supervisor for host in fleet.hosts if host.is_told}
    left = _longest(fleet.hosts)
    if later:
        left = _at_the_pace_so_far(fleet, now - record.begun_at)
    return msgspec.structs.replace(
        fleet, wave=current_wave(record, told & {*record.hosts}), waves=len(waves(record)), time_left=left
    )


def _longest(hosts: Iterable[HostProgress]) -> float | None:
    return max((eta for host in hosts if (eta := eta_of(host)) is not None), default=None)


def _at_the_pace_so_far(fleet: FleetView, elapsed: float) -> float | None:
    whole = fleet.size * len(fleet.hosts)
    there = sum(fleet.size if host.state is HostState.DONE else min(host.done, fleet.size) for host in fleet.hosts)
    return elapsed * (whole - there) / there if there and elapsed > 0 else None


def eta_of(host: HostProgress) -> float | None:
    """Returns the seconds until a host that is fetching has everything, at its present rate."""
    if host.state is not HostState.FETCHING or host.rate <= 0:
        return None
    return max(0, host.size - host.done) / host.rate
