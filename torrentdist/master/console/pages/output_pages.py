"""The console's page of what the workers of a job write, live."""

from collections.abc import Iterator
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.operation import Operation
from torrentdist.host.http.web import number_parameter
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_markup import Markup, Visit
from torrentdist.master.console.console_views import JobOutputView, OutputLine
from torrentdist.master.console.host_asking import ANY_WORKER, HostAsking
from torrentdist.master.console.live_feeds import ALWAYS_NEW, LiveFeeds
from torrentdist.master.console.visits import Visits, answer
from torrentdist.master.http.mutation_requests import records_for
from torrentdist.master.jobs.job_requests import JobRequests
from torrentdist.master.reads.saved_records import Records
from torrentdist.model import ids
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.security.principal import Role

MOST_WORKER = 1_000_000


class OutputPages:
    def __init__(
        self, visits: Visits, jobs: JobRequests, records: Records, asking: HostAsking, feeds: LiveFeeds
    ) -> None:
        self._visits = visits
        self._jobs = jobs
        self._records = records
        self._asking = asking
        self._feeds = feeds

    def operations(self) -> Iterator[Operation]:
        summary = "the console's page of what a job's workers write"
        yield Operation("GET", "/ui/jobs/{job}/output", self.output_page, JobOutputView, summary, Role.READER)
        summary = "what a worker writes, again and again, as server-sent events"
        yield Operation("GET", "/ui/live/jobs/{job}/output", self.output_live, None, summary, Role.READER)

    async def output_page(self, request: Request) -> Response:
        view = await self._view(request, ids.job_id(request.path_params["job"]), _wanted(request))
        return answer(request, lambda: output_html(self._visits.of(request), view), view)

    async def output_live(self, request: Request) -> Response:
        job, wanted = ids.job_id(request.path_params["job"]), _wanted(request)

        async def part() -> str:
            return output_part(await self._view(request, job, wanted))

        return await self._feeds.answer(request, f"output {job} {_query(wanted)}", part, ALWAYS_NEW)

    async def _view(self, request: Request, job: JobId, wanted: OutputLine) -> JobOutputView:
        told = await self._jobs.told(records_for(request, self._records), job)
        hosts = [worker.supervisor for worker in told.workers] + [event.supervisor for event in told.events or ()]
        return await self._asking.output(told.id, (SupervisorId(host) for host in hosts if host), wanted)


def _wanted(request: Request) -> OutputLine:
    query = request.query_params
    host = query.get("host", "")
    return OutputLine(
        supervisor=ids.supervisor_id(host) if host else SupervisorId(""),
        worker=int(number_parameter(request, "worker", ANY_WORKER, low=ANY_WORKER, high=MOST_WORKER)),
        stream=query.get("stream", ""),
    )


def _query(line: OutputLine) -> str:
    return urlencode({"host": line.supervisor, "worker": line.worker, "stream": line.stream})


def output_html(visit: Visit, view: JobOutputView) -> str:
    rows = [
        (
            m.link(f"{visit.path}?{_query(line)}", f"worker {line.worker}, {line.stream}"),
            m.to("hosts", line.supervisor),
            m.bytes_of(line.size),
            m.moment(line.at),
            m.badge("below", "good") if line == view.shown else m.NOTHING,
        )
        for line in view.lines
    ]
    shown = view.shown
    source = f"/ui/live/jobs/{view.job}/output?{_query(shown) if shown is not None else ''}"
    heads = ("Output", "Host", "Kept", "Written to last", "Shown")
    return m.page(
        visit,
        f"Output of {view.job}",
        Markup(f"<p>{m.to('jobs', view.job)}</p>"),
        m.table("What hosts keep", heads, rows, "No host that answers keeps output of this job."),
        m.live(source, output_part(view)),
        m.command(f"torrentdist job logs {view.job} --follow"),
    )


def output_part(view: JobOutputView) -> Markup:
    """Returns the end of one output, and which hosts are silent."""
    silent = ", ".join(view.silent)
    note = Markup(f'<p class="notice warn">No answer from {m.text(silent)}.</p>') if silent else m.NOTHING
    line = view.shown
    if line is None:
        return note
    title = f"The end of {line.stream} of worker {line.worker} on {line.supervisor}"
    return m.join([note, Markup(f"<h2>{m.text(title)}</h2>"), m.output(title, view.text)])
