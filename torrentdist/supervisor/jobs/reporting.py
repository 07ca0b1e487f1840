"""Exchanges job news with the masters: sends heartbeats to the leader, and asks any master about
jobs.

Always: one request reports all workers. The leader's last answer stands until the next one.
Never: draw conclusions from a missing answer.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

from torrentdist.http.api_calls import decode
from torrentdist.http.asking_in_turn import ask_leader, first_sound
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import Answer
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import Fact, WorkerChanged
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.wire.job_messages import HeartbeatAnswer, HeartbeatBody, JobView, WorkerReport
from torrentdist.model.wire.view import view_of
from torrentdist.supervisor.jobs.host_workers import HostWorkers
from torrentdist.supervisor.jobs.local_state import JobFacts
from torrentdist.supervisor.process.worker_homes import write_peers

log = get_logger()

FIRST_INTERVAL_SECS = 1.0
LONGEST_INTERVAL_SECS = 30.0
SETTLE_SECS = 0.05
"""Changes within this time share one heartbeat."""


def transitions(before: Sequence[WorkerReport], after: Sequence[WorkerReport]) -> list[WorkerChanged]:
    """Returns an event for each worker whose state, start or end has changed."""
    known = {(report.job, report.worker): report for report in before}
    found = []
    for new in after:
        old = known.get((new.job, new.worker))
        if old is None or _story(old) != _story(new):
            found.append(view_of(WorkerChanged, new, before=None if old is None else old.state))
    return found


def _story(report: WorkerReport) -> tuple[object, ...]:
    return report.state, report.pid, report.exit_code, report.restarts, report.fencing


async def job_facts(http: Http, urls: Sequence[str], job: JobId) -> JobFacts | None:
    """Returns what the masters know about a job, or None if a master says that the job does not
    exist."""

    async def read(answer: Answer) -> JobView:
        return decode(answer, JobView)

    try:
        path = f"/v1/jobs/{job}?any=true"
        view = await first_sound(http, urls, path, read, is_final=lambda refusal: refusal.http_status < 500)
    except TorrentdistError as error:
        if error.code in ("job_not_found", "not_found"):
            return None
        raise
    if view.spec is None:
        return None
    return JobFacts(
        incarnation=repr(view.created_at),
        bundle=view.bundle,
        dependencies=tuple(view.dependencies),
        workers=view.wanted,
        spec=view.spec,
        signature=view.signature,
    )


class Reporting:
    def __init__(
        self,
        http: Http,
        supervisor: SupervisorId,
        masters: Callable[[], Sequence[str]],
        jobs: HostWorkers,
        tell: Callable[[Fact], None],
    ) -> None:
        self._http = http
        self._supervisor = supervisor
        self._masters = masters
        self._jobs = jobs
        self._tell = tell
        self._seen: list[WorkerReport] = []
        jobs.on_change(self.poke)
        self._leader = ""
        self._said: list[WorkerReport] = []
        self._wake = asyncio.Event()
        self._interval = FIRST_INTERVAL_SECS
        self.heard_at: float | None = None
        """When the leader last answered (monotonic); None if it never did."""

    def poke(self) -> None:
        """Sends a heartbeat now if anything has changed since the last one."""
        reports = self._look()
        if reports != self._said:
            self._wake.set()

    def _look(self) -> list[WorkerReport]:
        """Returns the current reports, and emits an event for each change since the last call."""
        before, self._seen = self._seen, self._jobs.reports()
        for fact in transitions(before, self._seen):
            self._tell(fact)
        return self._seen

    async def run(self) -> None:
        while True:
            self._wake.clear()
            await self._beat(self._body())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._wake.wait()
                    await asyncio.sleep(SETTLE_SECS)

    def _body(self) -> HeartbeatBody:
        jobs = self._jobs
        return HeartbeatBody(supervisor=self._supervisor, generation=jobs.generation, workers=self._look())

    async def _beat(self, body: HeartbeatBody) -> None:
        told = await ask_leader(self._http, self._leader, self._masters(), "/v1/heartbeat", body, HeartbeatAnswer)
        if told is None:
            self._interval = FIRST_INTERVAL_SECS
            return
        self._leader, answer = told
        self._said, self.heard_at = body.workers, time.monotonic()
        self._interval = min(LONGEST_INTERVAL_SECS, max(SETTLE_SECS, answer.interval))
        jobs = {report.job for report in body.workers}
        try:
            for job, hosts in answer.peers.items():
                if job in jobs:
                    await asyncio.to_thread(write_peers, self._jobs.homes, job, hosts)
        except OSError as error:  # The next answer repeats these addresses.
            log.warning("cannot tell workers the addresses of the others", reason=str(error))
