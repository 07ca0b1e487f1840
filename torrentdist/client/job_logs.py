"""Reads the output of a job's workers from the hosts that keep it, once or for as long as the job
lives.

Always: each byte of a worker's stream on a host is returned once and in order, across rotation and
a restart of the supervisor. A worker that moves is followed. A host that does not answer is
reported, and asked again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from torrentdist.client import job_client
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.http.api_calls import Broken, Request, ask, error_in, send
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.records import ENDED
from torrentdist.model.wire.cluster_messages import SupervisorView
from torrentdist.model.wire.headers import NEXT_OFFSET
from torrentdist.model.wire.job_messages import JobView, WorkerOutput

STREAMS = ("stdout", "stderr")
ASK_SECS = 1.0
"""A host that is silent for longer is said to be so, and the others are shown."""
POLL_SECS = 2.0
POLL_ANSWER_SECS = 3.0
LOOK_SECS = 1.0
AT_ONCE = 64
LINE_BYTES = 200
"""A first guess at how long a line is, to find the last ones."""


@dataclass(frozen=True)
class LogLine:
    supervisor: SupervisorId
    worker: int
    stream: str
    line: bytes


Emit = Callable[[LogLine], None]
Note = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """Which part of it. `last`: of each stream, so many of the last lines that a host keeps; None:
    all.
    """

    workers: frozenset[int] | None = None
    streams: Sequence[str] = STREAMS
    last: int | None = None

    def has(self, output: WorkerOutput) -> bool:
        return (self.workers is None or output.worker in self.workers) and output.stream in self.streams


@dataclass
class _Source:
    """One stream of one worker on one host."""

    host: SupervisorView
    worker: int
    stream: str
    offset: int = 0
    rest: bytes = b""
    """The beginning of a line whose end has not been seen."""

    def lines(self, data: bytes) -> list[LogLine]:
        *whole, self.rest = (self.rest + data).split(b"\n")
        return [self._line(line) for line in whole]

    def last_line(self) -> list[LogLine]:
        rest, self.rest = self.rest, b""
        return [self._line(rest)] if rest else []

    def _line(self, line: bytes) -> LogLine:
        return LogLine(self.host.id, self.worker, self.stream, line)


@dataclass
class _Reader:
    client: MasterClient
    job: JobId
    wanted: Wanted
    emit: Emit
    note: Note
    silent: set[SupervisorId] = field(default_factory=set)
    """Hosts that were told of as not answering."""

    async def kept(self, hosts: Iterable[SupervisorView]) -> list[tuple[SupervisorView, WorkerOutput]]:
        """What these hosts keep of the job, the oldest of each worker first."""
        room = asyncio.Semaphore(AT_ONCE)

        async def look(host: SupervisorView) -> list[tuple[SupervisorView, WorkerOutput]]:
            request = Request("GET", f"/v1/host/jobs/{self.job}/logs", timeout=ASK_SECS)
            try:
                async with room:
                    found = await ask(self.client.http, host.url, request, list[WorkerOutput])
            except Broken as broken:
                self.miss(host, broken.detail)
                return []
            self.silent.discard(host.id)
            return [(host, output) for output in found if self.wanted.has(output)]

        found = await asyncio.gather(*(look(host) for host in hosts if host.url))
        return sorted((pair for pairs in found for pair in pairs), key=lambda p: (p[1].worker, p[1].at, p[1].stream))

    def miss(self, host: SupervisorView, detail: str) -> None:
        if host.id not in self.silent:
            self.silent.add(host.id)
            self.note(f"supervisor {host.id} does not answer: {detail}")

    async def read(self, source: _Source, follow: float = 0.0) -> bool:
        """Hand out what comes next; False at the end of what there is."""
        path = f"/v1/host/jobs/{self.job}/{source.worker}/log"
        params = {"stream": source.stream, "offset": str(source.offset), "follow": f"{follow:g}"}
        response = await send(
            self.client.http, source.host.url, Request("GET", path, params=params, timeout=POLL_ANSWER_SECS)
        )
        error = error_in(response)
        if error is not None:
            raise error
        source.offset = int(response.headers[NEXT_OFFSET])
        for line in source.lines(response.content):
            self.emit(line)
        return bool(response.content)

    async def start(self, source: _Source, output: WorkerOutput) -> None:
        """At the beginning of what is kept, or of its last lines."""
        source.offset = output.begin
        if self.wanted.last is None:
            return
        ahead = self.wanted.last * LINE_BYTES
        while True:
            source.offset = begin = max(output.begin, output.end - ahead)
            found: list[LogLine] = []
            reader = _Reader(self.client, self.job, self.wanted, found.append, self.note)
            while source.offset < output.end and await reader.read(source):
                pass
            if begin == output.begin or len(found) > self.wanted.last:  # the first one may be half a line
                break
            source.rest, ahead = b"", ahead * 8
        for line in found[max(0, len(found) - self.wanted.last) :]:
            self.emit(line)


async def read_logs(client: MasterClient, name: str, wanted: Wanted, emit: Emit, note: Note) -> None:
    """All that is kept, worker by worker, in the order of their hosts."""
    view, fleet = await asyncio.gather(_job(client, name), client.cluster())
    reader = _Reader(client, view.id if view else JobId(name), wanted, emit, note)
    kept = await reader.kept(fleet.supervisors)
    if view is None and not kept:
        raise TorrentdistError("job_not_found", id=name)
    if not kept:
        note("nothing of what was asked for is kept on any host that answers")
    for host, output in kept:
        source = _Source(host, output.worker, output.stream)
        try:
            await reader.start(source, output)
            while source.offset < output.end and await reader.read(source):
                pass
        except Broken as broken:
            reader.miss(host, broken.detail)
        for line in source.last_line():
            emit(line)


async def _job(client: MasterClient, name: str) -> JobView | None:
    """None: there is none any more; hosts may keep its output all the same."""
    try:
        return await job_client.job(client, name)
    except TorrentdistError as error:
        if error.code != "job_not_found":
            raise
        return None


async def follow_logs(client: MasterClient, name: str, wanted: Wanted, emit: Emit, note: Note) -> None:
    """What is kept, and what comes, until the job is gone or has ended."""
    view = await _job(client, name)
    if view is None:
        raise TorrentdistError("job_not_found", id=name)
    await _Following(_Reader(client, view.id, wanted, emit, note)).run(view)


class _Following:
    def __init__(self, reader: _Reader) -> None:
        self._reader = reader
        self._sources: dict[tuple[SupervisorId, int, str], _Source] = {}
        self._tasks: dict[tuple[SupervisorId, int, str], asyncio.Task[None]] = {}

    async def run(self, view: JobView | None) -> None:
        client, first = self._reader.client, True
        try:
            while True:
                over = view is None or view.status in ENDED
                hosts = (await client.cluster()).supervisors
                placed = {worker.supervisor for worker in view.workers} if view is not None else set()
                known = {id_ for id_, _, _ in self._sources}
                await self._look([h for h in hosts if first or h.id in placed or h.id in known], everything=first)
                if over:
                    break
                first = False
                await asyncio.sleep(LOOK_SECS)
                view = await self._job_or_last(view)
        finally:
            await self._stop()
        await self._drain()

    async def _job_or_last(self, view: JobView | None) -> JobView | None:
        """A cluster without a leader ends nothing."""
        try:
            return None if view is None else await _job(self._reader.client, view.id)
        except TorrentdistError as error:
            self._reader.note(error.message)
            return view

    async def _look(self, hosts: Collection[SupervisorView], *, everything: bool) -> None:
        for host, output in await self._reader.kept(hosts):
            key = (host.id, output.worker, output.stream)
            known = self._sources.get(key)
            if known is None:
                source = self._sources[key] = _Source(host, output.worker, output.stream, output.begin)
                if everything:
                    await self._reader.start(source, output)
            elif known.host != host:
                known.host = host  # it was started again, at another address
            task = self._tasks.get(key)
            more = output.end > self._sources[key].offset
            if (more or output.here) and (task is None or task.done()):
                self._tasks[key] = asyncio.create_task(self._follow(self._sources[key]))

    async def _follow(self, source: _Source) -> None:
        """For one poll, or for as long as there is more. The next look starts it again."""
        try:
            while await self._reader.read(source, POLL_SECS):
                pass
        except Broken as broken:
            self._reader.miss(source.host, broken.detail)
        except TorrentdistError as error:
            self._reader.note(error.message)

    async def _stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _drain(self) -> None:
        for source in self._sources.values():
            with contextlib.suppress(Broken, TorrentdistError):
                while await self._reader.read(source):
                    pass
            for line in source.last_line():
                self._reader.emit(line)
