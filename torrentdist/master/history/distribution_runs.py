"""Follows distributions: from what each host says to a run, and from a run to its summary.

Pure: values in, values out, with the time as an argument.
Always: a run ends when every host has the bundle, or when nothing has changed for GIVE_UP_SECS. A
host that has the bundle stays counted. A summary and a list of them are bounded.
Never: count a host twice.
"""

import math
from collections.abc import Iterable, Mapping

import msgspec

from torrentdist.model.ids import BundleId, Digest, SupervisorId
from torrentdist.model.wire.fleet_messages import DistributionSummary, HostArrival, HostProgress, HostState
from torrentdist.model.wire.transfer_messages import Sources

GIVE_UP_SECS = 600.0
"""Seconds without any change after which a run is over, whatever its hosts lack."""
MOST_SUMMARIES = 200
MOST_OPEN = 50
"""Most runs that are followed at once; of more, the oldest end."""
MOST_HOSTS = 10_000
"""Most hosts of a run that are followed. Further ones are not counted."""
MOST_LATE = 20
MOST_POINTS = 40
MOST_REASON = 200
SAME_RUN_SECS = 30.0
"""Longest time between the moments at which two masters see the same distribution begin."""


class HostLine(msgspec.Struct, frozen=True, array_like=True):
    """What a host of a run said last."""

    state: HostState = HostState.WAITING
    at: float = 0.0
    """When it had the bundle; 0: not yet."""
    done: int = 0
    masters: int = 0
    peers: int = 0
    local: int = 0
    plugin: int = 0
    reason: str = ""
    outside: int = 0


class DistributionRun(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution that is not over."""

    bundle: BundleId
    digest: Digest
    size: int
    began_at: float
    changed_at: float
    hosts: dict[SupervisorId, HostLine]
    left: int = 0
    """The hosts that were told to stop before they had it."""
    had: int = 0
    """The hosts that had it when the run began. They are not among `hosts`."""

    @property
    def id(self) -> str:
        return f"{self.bundle}@{int(self.began_at * 1000)}"

    @property
    def is_complete(self) -> bool:
        return all(line.at for line in self.hosts.values())


def joined(run: DistributionRun, hosts: Iterable[SupervisorId], now: float) -> DistributionRun:
    """Returns the run with further hosts that are told to fetch the bundle."""
    more = dict(run.hosts)
    for host in hosts:
        if len(more) < MOST_HOSTS:
            more.setdefault(host, HostLine())
    return run if len(more) == len(run.hosts) else msgspec.structs.replace(run, hosts=more, changed_at=now)


def followed(
    run: DistributionRun, news: Mapping[SupervisorId, HostProgress], left: Iterable[SupervisorId], now: float
) -> DistributionRun:
    """Returns the run after the news of some of its hosts. `left`: hosts that are no longer told to
    keep the bundle; those that have not got it leave the run."""
    changed = {
        host: line
        for host, said in news.items()
        if host in run.hosts and (line := _next(run.hosts[host], said, now)) != run.hosts[host]
    }
    gone = [host for host in left if host in run.hosts and not run.hosts[host].at]
    if not changed and not gone:
        return run
    hosts = {**run.hosts, **changed}
    for host in gone:
        del hosts[host]
    return msgspec.structs.replace(run, hosts=hosts, left=run.left + len(gone), changed_at=now)


def _next(line: HostLine, said: HostProgress, now: float) -> HostLine:
    if line.at:
        return line
    has = said.state is HostState.DONE
    known = (line.done, line.masters, line.peers, line.local, line.plugin, line.outside)
    told = (said.done, said.from_masters, said.from_peers, said.local, said.from_plugin, said.outside)
    # A host that is away says nothing of what it had.
    done, masters, peers, local, plugin, outside = told if any(told) else known
    return HostLine(
        state=said.state,
        at=now if has else 0.0,
        done=said.size if has else done,
        masters=masters,
        peers=peers,
        local=local,
        plugin=plugin,
        outside=outside,
        reason="" if has else said.reason[:MOST_REASON],
    )


def is_over(run: DistributionRun, now: float, goes_on: bool = False) -> bool:
    """`goes_on`: further hosts may be told."""
    return (run.is_complete and not goes_on) or now - run.changed_at >= GIVE_UP_SECS


def summary_of(run: DistributionRun, ended_at: float | None = None, cancelled: bool = False) -> DistributionSummary:
    """Returns what is kept of a run."""
    lines, began = run.hosts.values(), run.began_at
    arrivals = [0.0] * run.had + sorted(max(0.0, line.at - began) for line in lines if line.at)
    count, masters = len(run.hosts) + run.had, sum(line.masters for line in lines)
    return DistributionSummary(
        run=run.id,
        bundle=run.bundle,
        digest=run.digest,
        size=run.size,
        began_at=began,
        ended_at=ended_at,
        hosts=count,
        done=len(arrivals),
        left=run.left,
        cancelled=cancelled,
        half_secs=_reached(arrivals, count, 0.5),
        most_secs=_reached(arrivals, count, 0.9),
        all_secs=_reached(arrivals, count, 1.0),
        sources=Sources(
            masters=masters,
            peers=sum(line.peers for line in lines),
            local=sum(line.local for line in lines) + run.had * run.size,
            plugin=sum(line.plugin for line in lines),
            outside=sum(line.outside for line in lines),
        ),
        copies_from_masters=round(masters / run.size, 2) if run.size else 0.0,
        late=_late(run),
        reached=_curve(arrivals, count),
    )


def _reached(arrivals: list[float], count: int, share: float) -> float | None:
    needed = math.ceil(share * count)
    return round(arrivals[needed - 1], 3) if 0 < needed <= len(arrivals) else None


def _late(run: DistributionRun) -> list[HostArrival]:
    order = sorted(run.hosts.items(), key=lambda item: (item[1].at or math.inf, item[0]), reverse=True)
    return [
        HostArrival(
            supervisor=host,
            state=line.state,
            seconds=round(max(0.0, line.at - run.began_at), 3) if line.at else None,
            done=line.done,
            sources=Sources(
                masters=line.masters, peers=line.peers, local=line.local, plugin=line.plugin, outside=line.outside
            ),
            reason=line.reason,
        )
        for host, line in order[:MOST_LATE]
    ]


def _curve(arrivals: list[float], count: int) -> list[tuple[float, float]]:
    step = max(1, math.ceil(len(arrivals) / MOST_POINTS))
    shown = sorted({*range(step - 1, len(arrivals), step), *([len(arrivals) - 1] if arrivals else [])})[-MOST_POINTS:]
    return [(round(arrivals[place], 3), round((place + 1) / count, 4)) for place in shown]


class KeptHistory(msgspec.Struct, frozen=True, kw_only=True):
    """All that a master keeps: runs that are not over, and summaries of those that are."""

    open: dict[str, DistributionRun] = {}
    past: dict[str, DistributionSummary] = {}
    told: frozenset[str] = frozenset()
    """The past runs whose end a leader has written an event of."""

    @property
    def untold(self) -> list[DistributionSummary]:
        """The past runs without an event, the oldest first."""
        if len(self.told) == len(self.past):
            return []
        return sorted((self.past[run] for run in self.past.keys() - self.told), key=lambda one: (one.began_at, one.run))


def bounded(kept: KeptHistory) -> KeptHistory:
    """Returns the newest runs and summaries, as many as are kept."""
    newest = sorted(kept.past.values(), key=lambda s: (s.ended_at or s.began_at, s.run), reverse=True)
    runs = sorted(kept.open.values(), key=lambda run: (run.began_at, run.id), reverse=True)
    past = {found.run: found for found in newest[:MOST_SUMMARIES]}
    return KeptHistory(open={run.id: run for run in runs[:MOST_OPEN]}, past=past, told=kept.told.intersection(past))


def merged(theirs: KeptHistory, ours: KeptHistory) -> KeptHistory:
    """Returns what `theirs` says, and what only `ours` knows. Masters see the same distribution
    begin at slightly different moments: `theirs` decides."""
    told = [(run.bundle, run.began_at, math.inf) for run in theirs.open.values()]
    told += [(found.bundle, found.began_at, found.ended_at or math.inf) for found in theirs.past.values()]

    def is_told(bundle: BundleId, began: float, ended: float) -> bool:
        return any(
            bundle == name and began <= end + SAME_RUN_SECS and ended + SAME_RUN_SECS >= begin
            for name, begin, end in told
        )

    return bounded(
        KeptHistory(
            open={id_: run for id_, run in ours.open.items() if not is_told(run.bundle, run.began_at, run.changed_at)}
            | theirs.open,
            past={
                id_: found
                for id_, found in ours.past.items()
                if not is_told(found.bundle, found.began_at, found.ended_at or found.began_at)
            }
            | theirs.past,
            told=theirs.told | ours.told,
        )
    )
