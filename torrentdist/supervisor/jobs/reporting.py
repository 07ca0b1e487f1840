"""What a supervisor and the masters tell each other about jobs: heartbeats to the leader, questions to any.

Always holds: one request carries all workers; what the leader answers is kept, so that without one everything stays as
it was. Must not do: conclude anything from silence.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import structlog

from torrentdist.http11 import Http, HttpError
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import Fact, WorkerChanged
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.wire.job_messages import HeartbeatAnswer, HeartbeatBody, JobView, WorkerReport
from torrentdist.supervisor.jobs.host_workers import HostWorkers
from torrentdist.supervisor.jobs.local_state import JobFacts
from torrentdist.supervisor.process.launching import write_peers

log = structlog.get_logger(__name__)

FIRST_INTERVAL_SECS = 1.0
LONGEST_INTERVAL_SECS = 30.0
SETTLE_SECS = 0.05
"""Changes that come this close together are told together."""
V = TypeVar("V")


async def ask_any(http: Http, urls: Sequence[str], path: str, kind: type[V]) -> V:
    """What the first master says that answers; what it refuses counts as its answer."""
    for url in urls:
        try:
            response = await http.get(url + path)
            if response.status_code == 200:
                return msgspec.json.decode(response.content, type=kind)
            if response.status_code < 500:
                raise TorrentdistError.from_wire(msgspec.json.decode(response.content, type=dict))
        except (HttpError, msgspec.MsgspecError):
            continue
    raise TorrentdistError("unreachable", detail="none of the masters answers about jobs")


def transitions(before: Sequence[WorkerReport], after: Sequence[WorkerReport]) -> list[WorkerChanged]:
    """Which workers are not what they were: another state, another start, or another end."""
    known = {(report.job, report.worker): report for report in before}
    found = []
    for new in after:
        old = known.get((new.job, new.worker))
        if old is None or _story(old) != _story(new):
            fact = WorkerChanged(
                job=new.job,
                worker=new.worker,
                state=new.state,
                before=None if old is None else old.state,
                pid=new.pid,
                exit_code=new.exit_code,
                restarts=new.restarts,
                fencing=new.fencing,
                detail=new.detail,
            )
            found.append(fact)
    return found


def _story(report: WorkerReport) -> tuple[object, ...]:
    return report.state, report.pid, report.exit_code, report.restarts, report.fencing


async def job_facts(http: Http, urls: Sequence[str], job: JobId) -> JobFacts | None:
    try:
        view = await ask_any(http, urls, f"/v1/jobs/{job}?any=true", JobView)
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
        """When the leader answered last; monotonic."""

    def poke(self) -> None:
        """Something may have changed: say so at once if it has."""
        reports = self._look()
        if reports != self._said:
            self._wake.set()

    def _look(self) -> list[WorkerReport]:
        """What is true of the workers now; what has changed since the last look goes to the events."""
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
        answer = await self._tell_leader(body)
        if answer is None:
            self._interval = FIRST_INTERVAL_SECS
            return
        self._said, self.heard_at = body.workers, time.monotonic()
        self._interval = min(LONGEST_INTERVAL_SECS, max(SETTLE_SECS, answer.interval))
        jobs = {report.job for report in body.workers}
        try:
            for job, hosts in answer.peers.items():
                if job in jobs:
                    await asyncio.to_thread(write_peers, self._jobs.homes, job, hosts)
        except OSError as error:  # with the next answer it is tried again
            log.warning("workers are not told where the others are", reason=str(error))

    async def _tell_leader(self, body: HeartbeatBody) -> HeartbeatAnswer | None:
        """To the master that led last; then to whom it names, then to the others."""
        asked: set[str] = set()
        ahead = list(dict.fromkeys([self._leader, *self._masters()]))
        while ahead:
            url = ahead.pop(0)
            if not url or url in asked:
                continue
            asked.add(url)
            try:
                response = await self._http.post(f"{url}/v1/heartbeat", content=msgspec.json.encode(body))
                if response.status_code == 200:
                    self._leader = url
                    return msgspec.json.decode(response.content, type=HeartbeatAnswer)
                refusal = msgspec.json.decode(response.content, type=dict)
                if isinstance(named := refusal.get("leader"), str):
                    ahead.insert(0, named)
            except (HttpError, msgspec.MsgspecError):
                continue
        return None
