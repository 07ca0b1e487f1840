"""What supervisors tell the leader about their workers, and which supervisors have fallen silent.

A silent supervisor is registered in ZooKeeper, but has sent this leader no heartbeat for too long.
Always: reports are soft state. A new leader hears them again within a heartbeat. The time of a
supervisor's silence begins anew when this leader is elected, when it reaches ZooKeeper again after
a gap, and when it first sees the supervisor; unless a leader before has noted in ZooKeeper since
when it is silent, and this one does not hear it either. The texts of a report are short.
Never: move workers. The job loop does.
"""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

import msgspec

from torrentdist.cluster.records.record_index import RecordIndex
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.log import get_logger
from torrentdist.master.jobs.job_duties import placement
from torrentdist.master.jobs.job_views import Reports, of_the_places
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.master_session import MasterSession
from torrentdist.master.reads.zookeeper_reachability import ZooKeeperReachability
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.jobs.report_bounds import bounded
from torrentdist.model.wire.job_messages import HeartbeatAnswer, HeartbeatBody, WorkerReport

log = get_logger()

HEARTBEAT_SECS = 3.0
HEARTBEATS_PER_SEC = 8.0
"""Most heartbeats per second that a leader takes. Each costs the leader and the host about a
millisecond, so the more supervisors there are, the less often each of them sends one.
"""
SHARE_OF_SILENCE = 1 / 4
"""Longest period of heartbeats, as a share of the time after which a supervisor is silent: three
may be lost before that."""
LONGEST_HEARTBEAT_SECS = 15.0
OWED_AFTER = 3
"""Periods without a heartbeat after which it is shown as owed."""
FORGET_REPORTS_SECS = 60.0
LOOP_SECS = 300.0
"""A worker that was restarted within this time, and LOOP_RESTARTS times in all, is in a loop."""
LOOP_RESTARTS = 3
MOST_RESTARTED = 10_000


Since = Mapping[SupervisorId, float]
NOTHING_NOTED: Since = MappingProxyType({})


class Silence:
    """`limit`: seconds without a heartbeat after which a supervisor is silent; 0: never. Every
    `now` is of one monotonic clock."""

    def __init__(self, limit: float) -> None:
        self._limit = limit or float("inf")
        self._since: dict[SupervisorId, float] = {}
        """When each supervisor was heard last, or was seen first."""
        self._heard: dict[SupervisorId, float] = {}
        self._began: dict[SupervisorId, float] = {}
        """Since when each has been silent, at the last look."""
        self._silent: frozenset[SupervisorId] = frozenset()

    def heartbeat_secs(self, supervisors: int) -> float:
        """Returns the period of heartbeats for this number of supervisors.

        A supervisor reports a change at once.
        """
        longest = min(LONGEST_HEARTBEAT_SECS, self._limit * SHARE_OF_SILENCE)
        return max(HEARTBEAT_SECS, min(longest, supervisors / HEARTBEATS_PER_SEC))

    def heard(self, supervisor: SupervisorId, now: float) -> None:
        self._since[supervisor] = self._heard[supervisor] = now

    def of(
        self, registered: Collection[SupervisorId], now: float, listened: float, noted: Since = NOTHING_NOTED
    ) -> frozenset[SupervisorId]:
        """Returns the silent supervisors. `listened`: seconds for which we have heard without a
        gap. `noted`: since when some were silent under the leader before, by the same clock."""
        self._since = {id_: self._since.get(id_, now) for id_ in registered}
        self._heard = {id_: at for id_, at in self._heard.items() if id_ in self._since or id_ in noted}
        self._began = self.began(registered, now, listened, noted)
        silent = frozenset(id_ for id_, began in self._began.items() if now - began > self._limit)
        for id_ in sorted(silent - self._silent):
            log.warning(
                "a supervisor is silent, its workers move", supervisor=id_, seconds=round(now - self._began[id_])
            )
        self._silent = silent
        return silent

    def began(
        self, registered: Collection[SupervisorId], now: float, listened: float, noted: Since
    ) -> dict[SupervisorId, float]:
        """Returns since when each supervisor has not been heard."""
        own = {id_: max(self._since.get(id_, now), now - listened) for id_ in registered}
        if listened < OWED_AFTER * self.heartbeat_secs(len(registered)):  # it may be heard yet
            return own
        unheard = {id_ for id_ in noted.keys() & own.keys() if self._heard.get(id_, 0.0) <= now - listened}
        return own | {id_: min(own[id_], noted[id_]) for id_ in unheard}

    def due_in(self, now: float) -> float:
        """Returns the seconds until another supervisor may count as silent."""
        waits = (began + self._limit - now for id_, began in self._began.items() if id_ not in self._silent)
        return max(0.0, min(waits, default=float("inf")))


class Heartbeats:
    def __init__(
        self, session: MasterSession, leadership: Leadership, reachability: ZooKeeperReachability, silent_secs: float
    ) -> None:
        self._session = session
        self._mirror = session.mirror
        self._leadership = leadership
        self._reachability = reachability
        self._heard: dict[SupervisorId, tuple[float, HeartbeatBody]] = {}
        self._index = RecordIndex()
        self._restarted: dict[tuple[JobId, int], tuple[float, WorkerReport]] = {}
        """The workers whose restarts grew, when, and their last report of an end."""
        self.news_count = 0
        """Grows when a supervisor reports something else than before."""
        self.silence = Silence(silent_secs)
        self.news = asyncio.Event()
        """Set when a supervisor reports something else than before."""

    def hear(self, body: HeartbeatBody) -> HeartbeatAnswer:
        self._leadership.fence()
        body = msgspec.structs.replace(body, workers=[bounded(report) for report in body.workers])
        before = self._heard.get(body.supervisor)
        self._heard[body.supervisor] = (time.monotonic(), body)
        self.silence.heard(body.supervisor, time.monotonic())
        if before is None or before[1].workers != body.workers:
            self.news.set()
            self.news_count += 1
            self._note_restarts([] if before is None else before[1].workers, body.workers)
        snapshot = self._mirror.snapshot
        self._index.follow(snapshot)
        peers: dict[JobId, dict[str, str]] = {report.job: {} for report in body.workers}
        for id_ in {id_ for job in peers for id_ in self._index.running(job)}:
            host = snapshot.supervisors.get(id_)
            for worker in snapshot.assignments[id_].record.workers:
                if worker.job in peers and host is not None:
                    peers[worker.job][str(worker.worker)] = host.host
        return HeartbeatAnswer(interval=self.silence.heartbeat_secs(len(snapshot.supervisors)), peers=peers)

    def _note_restarts(self, before: Iterable[WorkerReport], after: Iterable[WorkerReport]) -> None:
        known = {(report.job, report.worker): report.restarts for report in before}
        for report in after:
            key = report.job, report.worker
            if known.get(key, report.restarts) < report.restarts:
                self._restarted.pop(key, None)
                self._restarted[key] = time.monotonic(), report
        while len(self._restarted) > MOST_RESTARTED:
            del self._restarted[next(iter(self._restarted))]

    def restart_loops(self) -> list[WorkerReport]:
        """Returns the last ends of the workers that are restarted again and again."""
        lately = time.monotonic() - LOOP_SECS
        return [report for at, report in self._restarted.values() if at >= lately and report.restarts >= LOOP_RESTARTS]

    def listened_for(self) -> float:
        """Returns for how many seconds this leader could hear every supervisor without a gap.

        Before that, an absence says nothing.
        """
        return min(self._leadership.led_for(), self._reachability.seen_for())

    def silent_secs(self, snapshot: ClusterSnapshot) -> dict[SupervisorId, float] | None:
        """Returns how long each supervisor has been silent. None: only the leader hears them."""
        if not self._leadership.is_leader():
            return None
        now, listened = time.monotonic(), self.listened_for()
        began = self.silence.began(snapshot.supervisors, now, listened, self._noted(snapshot, now))
        owed = OWED_AFTER * self.silence.heartbeat_secs(len(snapshot.supervisors))
        return {id_: round(now - at, 1) if now - at > owed else 0.0 for id_, at in began.items()}

    def silent(self, snapshot: ClusterSnapshot) -> frozenset[SupervisorId]:
        """Returns the supervisors whose workers move."""
        now = time.monotonic()
        known = snapshot.supervisors.keys() | snapshot.known_supervisors.keys()
        lately = now - FORGET_REPORTS_SECS
        self._heard = {id_: heard for id_, heard in self._heard.items() if id_ in known or heard[0] >= lately}
        return self.silence.of(snapshot.supervisors, now, self.listened_for(), self._noted(snapshot, now))

    def _noted(self, snapshot: ClusterSnapshot, now: float) -> Since:
        known = snapshot.known_supervisors.items()
        noted = {id_: entry.record.silent_since for id_, entry in known if entry.record.silent_since}
        server_now = self._session.zookeeper.server_now() if noted else None
        return {} if server_now is None else {id_: now - max(0.0, server_now - at) for id_, at in noted.items()}

    def unheard(self, snapshot: ClusterSnapshot, server_now: float) -> dict[SupervisorId, float]:
        """Returns since when, by ZooKeeper's clock, each supervisor has owed its leader heartbeats.
        One that owed them to the leader before does so until this one has heard it."""
        owed = {id_: server_now - secs for id_, secs in (self.silent_secs(snapshot) or {}).items() if secs}
        elected = time.monotonic() - self.listened_for()
        kept = {
            id_: entry.record.silent_since
            for id_, entry in snapshot.known_supervisors.items()
            if entry.record.silent_since and self._heard.get(id_, (0.0, None))[0] <= elected
        }
        return owed | kept

    def reports(self, snapshot: ClusterSnapshot) -> Reports:
        """Returns what is known of each worker from the host that it has its place on."""
        return of_the_places({id_: body.workers for id_, body in self.recent().items()}, placement(snapshot))

    def recent(self) -> dict[SupervisorId, HeartbeatBody]:
        """Returns the last heartbeat of each supervisor that was heard lately."""
        recent = time.monotonic() - FORGET_REPORTS_SECS
        return {id_: body for id_, (at, body) in self._heard.items() if at >= recent}
