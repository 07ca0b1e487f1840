"""Reads the output of a job's workers from the hosts that keep it, once or for as long as the job
exists.

Always: each byte of a worker's stream on a host is returned once and in order, across rotation and
restarts of the supervisor. A worker that moves to another host is followed. A host that does not
answer or refuses is reported once, and asked again. Masters that are away end no following; a
line that cannot be written does, within seconds.
Longer than most files: reading once and following share how a host is read.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from torrentdist.client import job_client
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.http.api_calls import Broken, Request, ask, error_in, send
from torrentdist.model.errors import EXIT_UNAVAILABLE, TorrentdistError, required
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.records import ENDED
from torrentdist.model.wire.cluster_messages import SupervisorView
from torrentdist.model.wire.headers import NEXT_OFFSET, OFFSET
from torrentdist.model.wire.job_messages import JobView, WorkerOutput
from torrentdist.security.passes import PARAMETER

STREAMS = ("stdout", "stderr")
ASK_SECS = 1.0
"""After this long a host is reported as silent, and the output of the others is shown."""
POLL_SECS = 2.0
POLL_ANSWER_SECS = 3.0
LOOK_SECS = 1.0
AT_ONCE = 64
RENEW_PASS_SECS = 300.0
"""How old the passes may be. Hosts accept them for three times as long."""
LINE_BYTES = 200
"""First guess of a line's length, for finding the last lines."""
LONGEST_LINE = 1024 * 1024
"""A longer line is given in parts. A worker that only moves a progress bar never ends one."""


class LogLine(msgspec.Struct, frozen=True):
    supervisor: SupervisorId
    worker: int
    stream: str
    line: bytes


Emit = Callable[[LogLine], None]
Note = Callable[[str], None]


class Wanted(msgspec.Struct, frozen=True):
    """The part of the output to read. `last` is the number of last lines per stream on each host;
    None means all."""

    workers: frozenset[int] | None = None
    streams: Sequence[str] = STREAMS
    last: int | None = None

    def has(self, output: WorkerOutput) -> bool:
        return (self.workers is None or output.worker in self.workers) and output.stream in self.streams


_Key = tuple[SupervisorId, int, str]


@dataclass
class _Source:
    """One stream of one worker on one host."""

    host: SupervisorView
    worker: int
    stream: str
    offset: int = 0
    rest: bytes = b""
    """The beginning of a line whose end has not arrived yet."""

    @property
    def key(self) -> _Key:
        return self.host.id, self.worker, self.stream

    def lines(self, data: bytes) -> list[LogLine]:
        *whole, self.rest = (self.rest + data).split(b"\n")
        if len(self.rest) >= LONGEST_LINE:
            whole, self.rest = [*whole, self.rest], b""
        return [self._line(line) for line in whole]

    def last_line(self) -> list[LogLine]:
        rest, self.rest = self.rest, b""
        return [self._line(rest)] if rest else []

    def _line(self, line: bytes) -> LogLine:
        return LogLine(self.host.id, self.worker, self.stream, line)


@dataclass
class _HostPasses:
    """What lets us read the job's output at hosts. They don't get our token."""

    client: MasterClient
    job: JobId
    given: Mapping[SupervisorId, str] = field(default_factory=dict)
    renew_at: float = 0.0

    async def renew(self) -> None:
        now = asyncio.get_running_loop().time()
        if self.client.config.token_file and now >= self.renew_at:
            self.given = await job_client.output_passes(self.client, self.job)
            self.renew_at = now + RENEW_PASS_SECS

    def request(self, host: SupervisorId, path: str, timeout: float, **params: str) -> Request:
        given = {PARAMETER: self.given[host]} if host in self.given else {}
        return Request("GET", path, params={**params, **given}, timeout=timeout, anonymously=True)


@dataclass
class _Troubles:
    """Reports each trouble once, until what it concerns works again."""

    note: Note
    told: set[object] = field(default_factory=set)

    def report(self, concerns: object, text: str) -> None:
        if concerns not in self.told:
            self.told.add(concerns)
            self.note(text)

    def over(self, concerns: object) -> None:
        self.told.discard(concerns)


@dataclass
class _Reader:
    client: MasterClient
    job: JobId
    admission: _HostPasses
    wanted: Wanted
    emit: Emit
    troubles: _Troubles
    refusal: TorrentdistError | None = None
    """Why all hosts of the last look refused, if they did."""

    async def kept(self, hosts: Iterable[SupervisorView]) -> list[tuple[SupervisorView, WorkerOutput]]:
        """Returns the job's output on these hosts, the oldest of each worker first."""
        room = asyncio.Semaphore(AT_ONCE)
        asked = [host for host in hosts if host.url]
        refusals: list[TorrentdistError] = []

        async def look(host: SupervisorView) -> list[tuple[SupervisorView, WorkerOutput]]:
            request = self.admission.request(host.id, f"/v1/host/jobs/{self.job}/logs", ASK_SECS)
            try:
                async with room:
                    found = await ask(self.client.http, host.url, request, list[WorkerOutput])
            except Broken as broken:
                self.miss(host, broken.detail)
                return []
            except TorrentdistError as error:
                refusals.append(error)
                self.troubles.report(host.id, f"supervisor {host.id} refuses: {error.message}")
                return []
            self.troubles.over(host.id)
            return [(host, output) for output in found if self.wanted.has(output)]

        found = await asyncio.gather(*(look(host) for host in asked))
        self.refusal = refusals[0] if refusals and len(refusals) == len(asked) else None
        return sorted((pair for pairs in found for pair in pairs), key=lambda p: (p[1].worker, p[1].at, p[1].stream))

    def miss(self, host: SupervisorView, detail: str) -> None:
        self.troubles.report(host.id, f"supervisor {host.id} does not answer: {detail}")

    def refused(self, source: _Source, error: TorrentdistError) -> None:
        text = f"{source.stream} of worker {source.worker} on {source.host.id} cannot be read: {error.message}"
        self.troubles.report(source.key, text)

    def lose(self, source: _Source, gone: int) -> None:
        what = f"{source.stream} of worker {source.worker} on {source.host.id}"
        self.troubles.note(f"{gone:,} bytes of {what} are gone: it keeps the last output only (supervisor.log_bytes)")

    async def read(self, source: _Source, follow: float = 0.0) -> bool:
        """Emits the next lines. Returns False at the end of the output."""
        path = f"/v1/host/jobs/{self.job}/{source.worker}/log"
        wanted = {"stream": source.stream, "offset": str(source.offset), "follow": f"{follow:g}"}
        request = self.admission.request(source.host.id, path, POLL_ANSWER_SECS, **wanted)
        response = await send(self.client.http, source.host.url, request)
        error = error_in(response)
        if error is not None:
            raise error
        self.troubles.over(source.key)
        gone = int(response.headers[OFFSET]) - source.offset
        if gone > 0:
            self.lose(source, gone)
        source.offset = int(response.headers[NEXT_OFFSET])
        for line in source.lines(response.content):
            self.emit(line)
        return bool(response.content)

    async def start(self, source: _Source, output: WorkerOutput) -> None:
        """Starts at the beginning of the output, or at its last lines."""
        if self.wanted.last is None:
            return
        ahead = self.wanted.last * LINE_BYTES
        while True:
            source.offset = begin = max(output.begin, output.end - ahead)
            found: list[LogLine] = []
            reader = _Reader(self.client, self.job, self.admission, self.wanted, found.append, self.troubles)
            while source.offset < output.end and await reader.read(source):
                pass
            # The first of these lines may be incomplete.
            if begin == output.begin or len(found) > self.wanted.last:
                break
            source.rest, ahead = b"", ahead * 8
        if begin == output.begin > 0 and len(found) < self.wanted.last:
            self.lose(source, begin)
        for line in found[max(0, len(found) - self.wanted.last) :]:
            self.emit(line)


async def read_logs(client: MasterClient, name: str, wanted: Wanted, emit: Emit, note: Note) -> None:
    """Emits all kept output, worker by worker, the oldest first."""
    view, fleet = await asyncio.gather(_job(client, name), client.cluster())
    job = view.id if view else JobId(name)
    reader = _Reader(client, job, _HostPasses(client, job), wanted, emit, _Troubles(note))
    await reader.admission.renew()
    kept = await reader.kept(fleet.supervisors)
    if reader.refusal is not None:
        raise reader.refusal
    if view is None and not kept:
        raise TorrentdistError("job_not_found", id=name)
    if not kept:
        note("no host that answers keeps any of the requested output")
    for host, output in kept:
        source = _Source(host, output.worker, output.stream)
        try:
            await reader.start(source, output)
            while source.offset < output.end and await reader.read(source):
                pass
        except Broken as broken:
            reader.miss(host, broken.detail)
        except TorrentdistError as error:
            reader.refused(source, error)
        for line in source.last_line():
            emit(line)


async def _job(client: MasterClient, name: str) -> JobView | None:
    """Returns None if the job no longer exists. Hosts may still keep its output."""
    try:
        return await job_client.job(client, name)
    except TorrentdistError as error:
        if error.code != "job_not_found":
            raise
        return None


async def follow_logs(client: MasterClient, name: str, wanted: Wanted, emit: Emit, note: Note) -> None:
    """Emits the kept output and all new output, until the job is removed or has ended."""
    view = required(await _job(client, name), "job_not_found", id=name)
    admission = _HostPasses(client, view.id)
    await admission.renew()
    hosts = (await client.cluster()).supervisors
    await _Following(_Reader(client, view.id, admission, wanted, emit, _Troubles(note)), view, hosts).run()


class _Following:
    def __init__(self, reader: _Reader, view: JobView, hosts: Sequence[SupervisorView]) -> None:
        self._reader = reader
        self._view: JobView | None = view
        self._hosts = hosts
        self._sources: dict[_Key, _Source] = {}
        self._tasks: dict[_Key, asyncio.Task[None]] = {}
        self._unstarted: set[_Key] = set()
        """Kept output whose last lines could not be read yet."""

    async def run(self) -> None:
        asking: asyncio.Task[None] | None = None
        first = True
        try:
            while True:
                view = self._view
                placed = {worker.supervisor for worker in view.workers} if view is not None else set()
                known = {id_ for id_, _, _ in (*self._sources, *self._unstarted)}
                await self._look([h for h in self._hosts if first or h.id in placed or h.id in known], everything=first)
                if view is None or view.status in ENDED:
                    break
                first = False
                # Masters that are away answer late, and the hosts are read meanwhile.
                asking = asking or asyncio.create_task(self._ask_masters())
                await asyncio.sleep(LOOK_SECS)
                if asking.done():
                    asking.result()
                    asking = None
        finally:
            if asking is not None:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            await self._stop()
        self._expect_written()
        await self._drain()

    async def _ask_masters(self) -> None:
        """Learns where the workers are now. While no master can say, the last answers hold."""
        reader = self._reader
        try:
            self._view = await _job(reader.client, reader.job)
            self._hosts = (await reader.client.cluster()).supervisors
            await reader.admission.renew()
        except TorrentdistError as error:
            if error.exit_code != EXIT_UNAVAILABLE:
                raise
            reader.troubles.report("masters", error.message)
        else:
            reader.troubles.over("masters")

    async def _look(self, hosts: Collection[SupervisorView], *, everything: bool) -> None:
        found = await self._reader.kept(hosts)
        self._expect_written()
        if everything and self._reader.refusal is not None:
            raise self._reader.refusal
        for host, output in found:
            key = (host.id, output.worker, output.stream)
            source = self._sources.get(key)
            if source is None:
                source = _Source(host, output.worker, output.stream)
                if (everything or key in self._unstarted) and not await self._start(source, output):
                    continue
                self._sources[key] = source
            source.host = host  # It may have been restarted at another address.
            task = self._tasks.get(key)
            more = output.end > source.offset
            if (more or output.here) and (task is None or task.done()):
                if task is not None:
                    task.result()
                self._tasks[key] = asyncio.create_task(self._follow(source))

    async def _start(self, source: _Source, output: WorkerOutput) -> bool:
        """Starts at the last lines that are wanted. Returns False if they cannot be read now."""
        self._unstarted.add(source.key)
        try:
            await self._reader.start(source, output)
        except Broken as broken:
            self._reader.miss(source.host, broken.detail)
            return False
        except TorrentdistError as error:
            self._reader.refused(source, error)
            return False
        self._unstarted.discard(source.key)
        return True

    async def _follow(self, source: _Source) -> None:
        """Reads once, or for as long as there is more. The next look starts it again."""
        try:
            while await self._reader.read(source, POLL_SECS):
                pass
        except Broken as broken:
            self._reader.miss(source.host, broken.detail)
        except TorrentdistError as error:
            self._reader.refused(source, error)

    def _expect_written(self) -> None:
        """Raises the error that ended a task, such as that of a pipe without a reader."""
        for task in self._tasks.values():
            if task.done() and not task.cancelled():
                task.result()

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
