"""Keeps the history of distributions in a master. Every master follows the running ones; the
leader's history counts.

Each master hears all hosts, so each can go on with a run whose leader has died. Standbys copy what
the leader keeps, and each writes it to its disk.
Always: the leader writes an event of each run that is over, unless a leader has written one that
this master knows of. At rest a round costs nothing that grows with records or hosts. A run in which
nothing changes is looked at ever less often. A run that cannot be followed holds up no other.
Never: decide or delay a distribution.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice

import msgspec

from torrentdist.cluster.records.record_index import RecordIndex
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import HttpError
from torrentdist.log import get_logger
from torrentdist.master.bundles.bundle_views import LISTED, host_progress
from torrentdist.master.history import distribution_runs as runs
from torrentdist.master.history.distribution_events import ended_event
from torrentdist.master.history.distribution_runs import DistributionRun, KeptHistory
from torrentdist.master.history.history_file import MOST_BYTES, HistoryFile, decode_history, encode_history
from torrentdist.master.history.run_begins import ToldBundles, begun, later_hosts, with_open
from torrentdist.master.master_session import MasterSession
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model.backoff import Retry
from torrentdist.model.events import Fact
from torrentdist.model.ids import BundleId, MasterId, PeerId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionState
from torrentdist.model.wire.fleet_messages import DistributionSummary, HostProgress
from torrentdist.model.wire.swarm_messages import SwarmEntry

log = get_logger()

LOOK_SECS = 1.0
LONGEST_LOOK_SECS = 10.0
"""How often a run is looked at in which nothing changes, and no further host is told."""
COPY_SECS = 2.0
REST_COPY_SECS = 20.0
"""How often a standby asks the leader: while something runs, and while nothing does."""
ANSWER_SECS = 5.0
WRITE_SECS = 5.0


class DistributionHistory:
    """`leads`: whether this master leads now. `tell`: writes an event."""

    def __init__(
        self,
        session: MasterSession,
        swarms: Swarms,
        leads: Callable[[], bool],
        http: Http,
        file: HistoryFile,
        tell: Callable[[Fact], None],
    ) -> None:
        self._tell = tell
        self._session = session
        self._swarms = swarms
        self._leads = leads
        self._http = http
        self._file = file
        self._told = ToldBundles()
        self._index = RecordIndex()
        self._kept = KeptHistory()
        self._written = self._kept
        self._write_at = self._copy_at = 0.0
        self._looks: dict[str, float] = {}
        """time.monotonic() of the next look at each run."""
        self._heard: dict[str, dict[SupervisorId, tuple[SwarmEntry | None, bool]]] = {}
        """What each host of a run had said at the last look, and whether it was registered."""
        self._failed: set[str] = set()
        """Runs that could not be followed, and bundles of which none could begin."""
        self._copied = KeptHistory()
        """What the last copy said."""
        self._trouble = Retry(COPY_SECS, REST_COPY_SECS)

    async def load(self) -> None:
        self._kept = self._written = await self._file.read()

    def now(self) -> float:
        """Returns the time by ZooKeeper's clock; by ours while it is unknown."""
        return self._session.zookeeper.server_now() or time.time()

    def summaries(self, bundle: BundleId | None = None) -> list[DistributionSummary]:
        """Returns what is known of distributions, the newest first."""
        found: Iterable[DistributionSummary] = [
            *(runs.summary_of(run) for run in self._kept.open.values() if bundle in (None, run.bundle)),
            *(past for past in self._kept.past.values() if bundle in (None, past.bundle)),
        ]
        return sorted(found, key=lambda summary: (summary.began_at, summary.run), reverse=True)

    def summary(self, run: str) -> DistributionSummary | None:
        if run in self._kept.open:
            return runs.summary_of(self._kept.open[run])
        return self._kept.past.get(run)

    def state(self, run: str) -> Hashable:
        """Returns another value when the summary of this run may be another one."""
        following = self._kept.open.get(run)
        return run in self._kept.past if following is None else (following.changed_at, len(following.hosts))

    def copy(self) -> bytes:
        """Returns all that this master keeps, for a standby."""
        return encode_history(self._kept)

    async def run(self) -> None:
        while True:
            snapshot = self._session.mirror.snapshot
            if snapshot.present:
                self._follow(snapshot)
                self._tell_ends()
                await self._copy_when_due(snapshot)
            await self._write_when_due()
            await asyncio.sleep(LOOK_SECS)

    async def close(self) -> None:
        if self._kept is not self._written:
            await self._file.write(self._kept)

    # following

    def _follow(self, snapshot: ClusterSnapshot) -> None:
        now, before = self.now(), self._kept
        for bundle, hosts in islice(self._told.news(snapshot).items(), runs.MOST_OPEN):
            with self._apart(bundle):
                others = self._before(snapshot, bundle, hosts)
                self._kept = begun(self._kept, snapshot, bundle, hosts, now, others)
        clock = time.monotonic()
        for id_, run in self._kept.open.items():
            if run is not before.open.get(id_) or clock >= self._looks.get(id_, 0.0):
                with self._apart(id_):
                    self._kept = self._looked(self._kept, snapshot, run, now)
                idle = now - (self._kept.open[id_].changed_at if id_ in self._kept.open else now)
                self._looks[id_] = clock + min(LONGEST_LOOK_SECS, max(LOOK_SECS * 0.9, idle / 10))
        if self._kept is not before:
            self._kept = runs.bounded(self._kept)
            self._looks = {id_: at for id_, at in self._looks.items() if id_ in self._kept.open}
            self._heard = {id_: heard for id_, heard in self._heard.items() if id_ in self._kept.open}
            self._failed &= self._kept.open.keys()

    @contextlib.contextmanager
    def _apart(self, what: str) -> Iterator[None]:
        """Follows one run. If that fails, the log says so once, and the others are followed."""
        try:
            yield
        except Exception as error:
            if what not in self._failed:
                log.warning("a distribution cannot be followed", what=what, exc_info=error)
            self._failed.add(what)
            self._heard.pop(what, None)  # the next look hears its hosts anew

    def _before(
        self, snapshot: ClusterSnapshot, bundle: BundleId, hosts: Iterable[SupervisorId]
    ) -> dict[SupervisorId, bool]:
        """Returns whether each other host that is told to keep a bundle has it."""
        known = snapshot.bundles.get(bundle)
        if known is None:
            return {}
        self._index.follow(snapshot)
        said = {
            host: self._swarms.directory.entry(PeerId(host), known.record.digest) for host in self._index.told(bundle)
        }
        new = set(hosts)
        return {host: one is not None and one.complete for host, one in said.items() if host not in new}

    def _tell_ends(self) -> None:
        untold = self._kept.untold if self._leads() else []
        for summary in untold:
            self._tell(ended_event(summary))
        if untold:
            told = self._kept.told.union(summary.run for summary in untold)
            self._kept = msgspec.structs.replace(self._kept, told=told)

    def _looked(self, kept: KeptHistory, snapshot: ClusterSnapshot, run: DistributionRun, now: float) -> KeptHistory:
        entry = snapshot.bundles.get(run.bundle)
        listed = entry is not None and entry.record.state in LISTED and entry.record.digest == run.digest
        following = runs.followed(run, *self._news(snapshot, run), now)
        order = snapshot.distributions.get(run.bundle)
        state = None if order is None else order.record.state
        if listed and not runs.is_over(following, now, goes_on=state is DistributionState.RUNNING):
            return kept if following is run else with_open(kept, kept.open | {run.id: following})
        kept = with_open(kept, {id_: other for id_, other in kept.open.items() if id_ != run.id})
        if not following.hosts and not following.left:
            return kept
        cancelled = order is not None and state is DistributionState.CANCELLED and order.mtime >= run.began_at
        summary = runs.summary_of(following, now, cancelled)
        return msgspec.structs.replace(kept, past=kept.past | {run.id: summary})

    def _news(
        self, snapshot: ClusterSnapshot, run: DistributionRun
    ) -> tuple[dict[SupervisorId, HostProgress], list[SupervisorId]]:
        """Returns the hosts of a run that say something new, and those that are no longer told to
        keep its bundle."""
        heard, news, left = self._heard.setdefault(run.id, {}), {}, []
        later = set(later_hosts(snapshot, run.bundle))
        entry = self._swarms.directory.entry
        for host, line in run.hosts.items():
            if line.at:
                continue
            if not self._told.is_told(host, run.bundle):
                if host not in later:
                    left.append(host)
                continue
            said = entry(PeerId(host), run.digest)
            known = heard.get(host)
            is_up = host in snapshot.supervisors
            if known is None or known[0] is not said or known[1] is not is_up:
                heard[host] = said, is_up
                news[host] = host_progress(snapshot, host, said, run.size)
        return news, left

    # copying

    async def _copy_when_due(self, snapshot: ClusterSnapshot) -> None:
        clock = time.monotonic()
        if clock < self._copy_at:
            return
        self._copy_at = clock + (
            COPY_SECS if self._kept.open or self._kept.untold else REST_COPY_SECS * random.uniform(0.75, 1.25)
        )
        source = _source(snapshot, self._session.me, self._leads())
        if source is None:
            return
        url, is_leader = source
        try:
            async with asyncio.timeout(ANSWER_SECS):
                answer = await self._http.request("GET", f"{url}/v1/distributions/copy", most_bytes=MOST_BYTES)
            if answer.status_code != 200:
                return  # an older release
            theirs = await asyncio.to_thread(decode_history, answer.content)
        except (HttpError, TimeoutError, ValueError, msgspec.MsgspecError) as exc:
            if self._trouble.failed(type(exc).__name__):
                log.info("the history of distributions could not be copied", source=url, reason=str(exc))
            return
        self._trouble.succeeded()
        if theirs != self._copied or not is_leader:
            self._copied = theirs
            kept = runs.merged(theirs, self._kept) if is_leader else runs.merged(self._kept, theirs)
            if kept != self._kept:
                self._kept = kept

    async def _write_when_due(self) -> None:
        ended = (self._kept.past.keys(), self._kept.told) != (self._written.past.keys(), self._written.told)
        if self._kept is self._written or (time.monotonic() < self._write_at and not ended):
            return
        self._write_at = time.monotonic() + WRITE_SECS
        kept = self._kept
        if await self._file.write(kept):
            self._written = kept


def _source(snapshot: ClusterSnapshot, me: MasterId, leads: bool) -> tuple[str, bool] | None:
    """Returns the URL of the master to copy from, and whether it leads: for a standby the leader,
    for a leader any standby, which may know what the leader's disk lost."""
    if not leads:
        leader = None if snapshot.leader is None else snapshot.masters.get(snapshot.leader)
        return None if leader is None or leader.id == me else (leader.url, True)
    others = [master.url for id_, master in sorted(snapshot.masters.items()) if id_ != me]
    return (random.choice(others), False) if others else None


async def closing(history: DistributionHistory, secs: float) -> None:
    """Writes what is not on disk yet, within `secs`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(secs):
            await history.close()
