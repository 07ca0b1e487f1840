"""Asks hosts what only they know, the room of their stores and the output of their workers, and the
other masters what happened there.

Always: a host that does not answer delays a page by ANSWER_SECS at most, and is then shown as
silent. A host whose answer is too large is shown as silent too. A host gets a pass, never a token.
"""

import asyncio
from collections.abc import Iterable, Mapping

from torrentdist.http.api_calls import Broken, Request, ask, error_in, send
from torrentdist.http.connection_pool import Http
from torrentdist.master.console.console_views import JobOutputView, OutputLine
from torrentdist.master.console.event_lines import EventLine
from torrentdist.master.reads.saved_records import Records
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.records import MasterRecord, SupervisorRecord
from torrentdist.model.wire.cluster_messages import HostStateView
from torrentdist.model.wire.job_messages import WorkerOutput
from torrentdist.security.passes import PARAMETER

ANSWER_SECS = 1.0
MOST_HOSTS = 64
"""Most hosts that are asked for the output of one job."""
ANY_WORKER = -1
MOST_BYTES = 256 * 1024
"""Largest answer that is accepted. Many hosts are asked at once."""
TAIL_BYTES = 32 * 1024
STATE = "/v1/host/state"


class HostAsking:
    def __init__(self, http: Http, records: Records) -> None:
        self._http = http
        self._records = records

    async def state(self, host: SupervisorId) -> HostStateView | None:
        """Returns what a host says of itself; None: it does not answer."""
        record = self._records.snapshot().supervisors.get(host)
        if record is None or not record.url:
            return None
        try:
            return await ask(self._http, record.url, self._request(record, STATE, STATE), HostStateView)
        except (Broken, TorrentdistError):
            return None

    async def output(self, job: JobId, hosts: Iterable[SupervisorId], wanted: OutputLine) -> JobOutputView:
        """Returns which output these hosts keep of a job, and the end of the wanted one. Empty text
        and ANY_WORKER stand for all."""
        known = self._records.snapshot().supervisors
        asked = sorted({host for host in hosts if host in known and known[host].url})[:MOST_HOSTS]
        found = await asyncio.gather(*(self._listing(job, known[host]) for host in asked))
        lines = [line for part in found for line in part or ()]
        silent = [host for host, part in zip(asked, found, strict=True) if part is None]
        chosen = _chosen(lines, wanted)
        text = "" if chosen is None else await self._tail(job, known[chosen.supervisor], chosen)
        return JobOutputView(job=job, lines=lines, shown=chosen, text=text, silent=silent)

    async def _listing(self, job: JobId, host: SupervisorRecord) -> list[OutputLine] | None:
        request = self._request(host, f"/v1/host/jobs/{job}/logs", f"/v1/host/jobs/{job}/")
        try:
            found = await ask(self._http, host.url, request, list[WorkerOutput])
        except (Broken, TorrentdistError):
            return None
        id_ = SupervisorId(host.id)
        return [
            OutputLine(supervisor=id_, worker=o.worker, stream=o.stream, size=o.end - o.begin, at=o.at) for o in found
        ]

    async def _tail(self, job: JobId, host: SupervisorRecord, line: OutputLine) -> str:
        wanted = {"stream": line.stream, "offset": str(-TAIL_BYTES)}
        request = self._request(host, f"/v1/host/jobs/{job}/{line.worker}/log", f"/v1/host/jobs/{job}/", **wanted)
        try:
            answer = await send(self._http, host.url, request)
        except Broken:
            return ""
        if error_in(answer) is not None:
            return ""
        return _readable(answer.content[-TAIL_BYTES:])

    async def events(self, me: str, wanted: Mapping[str, str]) -> tuple[list[EventLine], list[str]]:
        """Returns what other masters have noted, and the masters that do not answer."""
        others = [master for id_, master in sorted(self._records.snapshot().masters.items()) if id_ != me]
        found = await asyncio.gather(*(self._events_of(master, wanted) for master in others))
        lines = [line for part in found for line in part or ()]
        return lines, [master.id for master, part in zip(others, found, strict=True) if part is None]

    async def _events_of(self, master: MasterRecord, wanted: Mapping[str, str]) -> list[EventLine] | None:
        request = Request("GET", "/ui/events", params={**wanted, "own": "true"}, timeout=ANSWER_SECS)
        try:
            return await ask(self._http, master.url, request, list[EventLine])
        except (Broken, TorrentdistError):
            return None

    def _request(self, host: SupervisorRecord, path: str, prefix: str, **params: str) -> Request:
        given = {**params, PARAMETER: self._records.secrets.new_pass(host.id, prefix)}
        return Request("GET", path, params=given, timeout=ANSWER_SECS, most_bytes=MOST_BYTES, anonymously=True)


def _readable(content: bytes) -> str:
    """Returns the text with a visible replacement for each control character."""
    text = content.decode("utf-8", errors="replace").replace("\r\n", "\n")
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def _chosen(lines: list[OutputLine], wanted: OutputLine) -> OutputLine | None:
    """Returns the output that was written to last among those that are wanted."""
    matching = [
        line
        for line in lines
        if wanted.supervisor in ("", line.supervisor)
        and wanted.worker in (ANY_WORKER, line.worker)
        and wanted.stream in ("", line.stream)
    ]
    return max(matching, key=lambda line: (line.size > 0, line.at, line.stream), default=None)
