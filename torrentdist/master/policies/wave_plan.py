"""Plans which hosts of a distribution are told next, and when it is over. Pure.

The hosts are told in waves: first the canaries, then `concurrency` hosts at a time.
Always: the hosts of a wave are told only when the wave before is complete. A canary that does not
get the bundle, or a wave in which no host gets it, stops the rest. In every other wave a broken
host holds nobody up; its supervisor tries again by itself.
"""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState
from torrentdist.model.wire.fleet_messages import HostProgress, HostState

LAST_PATIENCE = 20
"""How many times as long the last wave waits for a broken host. Nobody waits behind it."""
MOST_NAMED = 5
"""Most hosts that a reason names."""
_WELL = (HostState.WAITING, HostState.FETCHING, HostState.DONE)
"""The states in which nothing is wrong with a host."""


class HostOutcome(msgspec.Struct, frozen=True):
    """What is known of a host that was told to fetch the bundle."""

    state: HostState
    secs: float = 0.0
    """For how long it has made no progress."""
    reason: str = ""
    had_it: bool = False
    """Whether it was seen with the whole bundle since it was told, though it may be gone now."""

    def broken(self, patience: float) -> bool:
        """Whether it is unlikely to get the bundle soon. A host that fetches is never broken."""
        return self.state not in (HostState.DONE, HostState.FETCHING) and self.secs >= patience

    def failed(self, patience: float) -> bool:
        """Whether something is wrong with it. A host that waits may fetch other bundles first."""
        return self.broken(patience) and self.state is not HostState.WAITING

    def pending(self, patience: float) -> bool:
        """Whether it is likely to get the bundle soon, and does not have it yet."""
        return not self.done and not self.broken(patience)

    @property
    def done(self) -> bool:
        return self.state is HostState.DONE

    @property
    def got_it(self) -> bool:
        """Whether its wave has nothing to wait for any more: a restart takes no bundle away."""
        return self.done or self.had_it


class HostProgressClock(msgspec.Struct, frozen=True):
    """Measures for how long a host has made no progress. Times are of any one clock.

    Only more bytes than ever before, or the whole bundle, are progress: a host whose fetch fails
    and begins again and again makes none. While something is wrong with a host, only such time
    counts: a host that wrote and verified for long may restart.
    """

    state: HostState
    since: float
    """When it made progress last, plus the time of the states since then that are over and in which
    nothing was wrong with it."""
    entered: float
    """When it came into its state."""
    most: int = 0
    """Most bytes that it was seen with."""
    had_it: bool = False

    def seen(self, state: HostState, done: int, now: float) -> "HostProgressClock":
        """Returns the clock after a look at the host."""
        since, entered, has_it = self.since, self.entered, state is HostState.DONE
        if state is self.state and done <= self.most and self.had_it >= has_it:
            return self
        if state is not self.state:
            since = min(now, since + now - entered) if self.state in _WELL else since
            entered = now
        if has_it or done > self.most:
            since = now
        return HostProgressClock(state, since, entered, max(done, self.most), self.had_it or has_it)

    def outcome(self, now: float, reason: str) -> HostOutcome:
        return HostOutcome(self.state, now - self.since, reason, self.had_it)


def waits_since(snapshot: ClusterSnapshot, host: HostProgress, bundle: BundleId) -> float | None:
    """Returns since when ZooKeeper shows that a host gets nowhere, for a master that sees it for
    the first time. None: it may have been at work until now.

    A host without a byte got nowhere since it was told, at the last write of its assignment at the
    latest. One that is gone got nowhere since a leader noted that.
    """
    assignment, known = snapshot.assignments.get(host.supervisor), snapshot.known_supervisors.get(host.supervisor)
    if host.state is HostState.GONE and known is not None:
        return known.record.absent_at or None
    if host.state is HostState.STUCK and not host.done and assignment is not None:
        return assignment.mtime if bundle in assignment.record.bundles else None
    return None


class TellHosts(msgspec.Struct, frozen=True):
    hosts: tuple[SupervisorId, ...]


class AwaitHosts(msgspec.Struct, frozen=True):
    """The hosts that were told are still at it."""


class EndDistribution(msgspec.Struct, frozen=True):
    state: DistributionState
    reason: str = ""


WaveStep = TellHosts | AwaitHosts | EndDistribution


def waves(record: DistributionRecord) -> list[tuple[SupervisorId, ...]]:
    """Returns the hosts of each wave."""
    return list(_waves(record))


def _waves(record: DistributionRecord) -> Iterator[tuple[SupervisorId, ...]]:
    hosts, at = record.hosts, 0
    while at < len(hosts):
        size = record.canary if record.canary and at == 0 else record.concurrency or len(hosts)
        yield hosts[at : at + size]
        at += size


def current_wave(record: DistributionRecord, told: Collection[SupervisorId]) -> int:
    """Returns the number of the last wave with a host that was told, from 1; 0: none was."""
    told = set(told)
    return max((n for n, wave in enumerate(waves(record), 1) if not told.isdisjoint(wave)), default=0)


def next_step(
    record: DistributionRecord,
    told: Collection[SupervisorId],
    outcomes: Mapping[SupervisorId, HostOutcome],
    patience: float,
) -> WaveStep:
    """Returns what is due for a running distribution.

    `told`: the hosts whose assignment names the bundle. `outcomes`: of these hosts. `patience`: the
    seconds after which a host without progress counts as broken.
    """
    planned, told = waves(record), set(told)
    for number, wave in enumerate(planned, 1):
        untold = tuple(host for host in wave if host not in told)
        if untold:
            return TellHosts(untold)
        seen = {host: outcomes[host] for host in wave if host in outcomes}
        last = number == len(planned)
        is_canary = number == 1 and record.canary > 0
        waits = patience if is_canary or not last else patience * LAST_PATIENCE
        broken = {host: outcome for host, outcome in seen.items() if outcome.broken(waits) and not outcome.got_it}
        failed = {host: outcome for host, outcome in broken.items() if outcome.failed(waits)}
        if is_canary and failed:
            return EndDistribution(DistributionState.STOPPED, f"a canary failed: {_told_of(failed)}")
        if len(failed) == len(wave) and not last:
            return EndDistribution(DistributionState.STOPPED, f"no host of wave {number} got it: {_told_of(failed)}")
        overtaken = failed if is_canary or (len(broken) == len(wave) and not last) else broken
        if any(host not in overtaken and not (host in seen and seen[host].got_it) for host in wave):
            return AwaitHosts()
    over = DistributionState.STANDING if record.everywhere else DistributionState.COMPLETE
    return EndDistribution(over, _lacking(record, outcomes))


def _lacking(record: DistributionRecord, outcomes: Mapping[SupervisorId, HostOutcome]) -> str:
    lack = {host: outcomes[host] for host in record.hosts if not outcomes[host].done}
    return f"these hosts lack it: {_told_of(lack)}" if lack else ""


def _told_of(hosts: Mapping[SupervisorId, HostOutcome]) -> str:
    named = sorted(hosts)[:MOST_NAMED]
    more = f" and {len(hosts) - len(named)} more" if len(hosts) > len(named) else ""
    return ", ".join(f"{host} ({hosts[host].reason or hosts[host].state})" for host in named) + more


def newcomers(
    record: DistributionRecord, matching: Collection[SupervisorId], told: Collection[SupervisorId], pending: int
) -> tuple[SupervisorId, ...]:
    """Returns the hosts that a standing order tells now.

    `matching`: registered hosts with the labels. `pending`: the number of told hosts that
    are likely to get it soon.
    """
    new = sorted(set(matching) - set(told))
    return tuple(new[: max(0, record.concurrency - pending)] if record.concurrency else new)
