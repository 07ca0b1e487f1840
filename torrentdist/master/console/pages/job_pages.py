"""The console's pages of jobs: the list, one job with its workers and its story, and what its
workers write, live.
"""

from collections.abc import Sequence
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.web import number_parameter
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_markup import Markup, Visit
from torrentdist.master.console.console_views import JobOutputView, OutputLine
from torrentdist.master.console.forms.action_forms import action_links
from torrentdist.master.console.host_asking import ANY_WORKER, HostAsking
from torrentdist.master.console.live_feeds import ALWAYS_NEW, LiveFeeds
from torrentdist.master.console.visits import Visits, answer
from torrentdist.master.http.routes import Routes, operation, records_for
from torrentdist.master.jobs.job_requests import JobRequests
from torrentdist.master.reads.paging import Page
from torrentdist.master.reads.saved_records import Records
from torrentdist.model import ids
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.jobs.folded_story import folded
from torrentdist.model.records import JobStatus
from torrentdist.model.wire.job_messages import JobView, WorkerState, WorkerView
from torrentdist.security.authorization import Role

ROWS = 100
MOST_WORKERS = 200
_TONES = {JobStatus.ACTIVE: "good", JobStatus.FINISHED: "good", JobStatus.FAILED: "bad", JobStatus.KILLED: "warn"}
POSSIBLE = {
    JobStatus.ACTIVE: ("deactivate", "rebalance", "kill"),
    JobStatus.INACTIVE: ("activate", "rebalance", "kill"),
}
"""The changes that apply to a job in a state; in any other it can be killed."""
_WORKER_TONES = {WorkerState.RUNNING: "good", WorkerState.BACKOFF: "bad", WorkerState.UNASSIGNED: "warn"}


class JobPages(Routes):
    def __init__(self, visits: Visits, jobs: JobRequests, records: Records) -> None:
        self._visits = visits
        self._jobs = jobs
        self._records = records

    @operation("GET", "/ui/jobs", list[JobView], Role.READER)
    async def jobs_page(self, request: Request) -> Response:
        """The console's list of jobs."""
        snapshot, query = records_for(request, self._records), request.query_params
        wanted, status = query.get("q", ""), query.get("status", "")

        def listed(id_: JobId) -> bool:
            return wanted in id_ and status in ("", snapshot.jobs[id_].record.status)

        views = self._jobs.views(snapshot, Page(query.get("after", ""), ROWS), listed)
        kept = {"q": wanted, "status": status}
        return answer(request, lambda: jobs_html(self._visits.of(request), views, kept), views)

    @operation("GET", "/ui/jobs/{job}", JobView, Role.READER)
    async def job_page(self, request: Request) -> Response:
        """The console's page of one job, with its story."""
        view = await self._jobs.told(records_for(request, self._records), ids.job_id(request.path_params["job"]))
        return answer(request, lambda: job_html(self._visits.of(request), view), view)


def jobs_html(visit: Visit, jobs: Sequence[JobView], kept: dict[str, str]) -> str:
    rows = [
        (
            m.to("jobs", job.id),
            m.badge(job.status, _TONES.get(job.status, "")),
            m.to("bundles", job.bundle),
            m.text(f"{_running(job)} of {job.wanted}"),
            m.moment(job.created_at),
            m.text(job.reason),
        )
        for job in jobs
    ]
    heads = ("Job", "Status", "Bundle", "Workers running", "Submitted", "Note")
    filters = m.filter_form(
        (m.Field("q", "Name contains", kept["q"]), m.Field("status", "Status", kept["status"], tuple(JobStatus)))
    )
    following = m.next_page(visit, jobs[-1].id, kept) if len(jobs) == ROWS else m.NOTHING
    listed = m.table("Jobs", heads, rows, "No job matches.")
    return m.page(visit, "Jobs", filters, listed, following, m.command("torrentdist job ls"))


def _running(job: JobView) -> object:
    if any(worker.state is None for worker in job.workers):
        return "?"
    return sum(worker.state is WorkerState.RUNNING for worker in job.workers)


def job_html(visit: Visit, job: JobView) -> str:
    known = m.facts(
        [
            ("Status", m.badge(job.status, _TONES.get(job.status, ""))),
            ("Note", m.text(job.reason or "none")),
            ("Bundle", m.to("bundles", job.bundle)),
            ("Needs also", m.join([m.to("bundles", id_) for id_ in job.dependencies], ", ") or m.text("nothing")),
            ("Submitted", m.moment(job.created_at)),
            ("Next change", m.text("none") if job.due_in is None else m.text(f"in {job.due_in:.0f} s")),
        ]
    )
    heads = ("Worker", "Host", "State", "Process", "Restarts", "Exit code", "Detail")
    workers = m.table("Workers", heads, [_worker_row(worker) for worker in job.workers[:MOST_WORKERS]])
    if job.events is None:
        story = Markup('<p class="soft">Unknown: ZooKeeper does not answer.</p>')
    else:
        story = m.table(
            "Story",
            ("When", "What", "Worker", "Host", "Detail"),
            [
                (
                    m.moment(event.at),
                    m.text(event.event),
                    m.text("" if event.worker is None else event.worker),
                    m.to("hosts", event.supervisor) if event.supervisor else m.NOTHING,
                    m.text(event.detail),
                )
                for event in reversed(folded(job.events))
            ],
            "Nothing is told yet.",
        )
    live = m.link(f"{m.address('jobs', job.id)}/output", "Live output")
    return m.page(
        visit,
        job.id,
        known,
        action_links(visit, "jobs", job.id, POSSIBLE.get(job.status, ("kill",)), job.bundle),
        m.section("Workers", workers),
        m.section(
            "Output",
            Markup(f"<p>{live}</p>"),
            m.command(f"torrentdist job logs {job.id} --follow"),
        ),
        m.section("Story", story, m.command(f"torrentdist job show {job.id}")),
    )


def _worker_row(worker: WorkerView) -> tuple[Markup, ...]:
    return (
        m.text(worker.worker),
        m.to("hosts", worker.supervisor) if worker.supervisor else m.text("none"),
        m.UNKNOWN if worker.state is None else m.badge(worker.state, _WORKER_TONES.get(worker.state, "")),
        m.UNKNOWN if worker.pid is None else m.text(worker.pid or ""),
        m.UNKNOWN if worker.restarts is None else m.text(worker.restarts),
        m.text("" if worker.exit_code is None else worker.exit_code),
        m.text(worker.detail),
    )


MOST_WORKER = 1_000_000


class OutputPages(Routes):
    def __init__(
        self, visits: Visits, jobs: JobRequests, records: Records, asking: HostAsking, feeds: LiveFeeds
    ) -> None:
        self._visits = visits
        self._jobs = jobs
        self._records = records
        self._asking = asking
        self._feeds = feeds

    @operation("GET", "/ui/jobs/{job}/output", JobOutputView, Role.READER)
    async def output_page(self, request: Request) -> Response:
        """The console's page of what a job's workers write."""
        view = await self._view(request, ids.job_id(request.path_params["job"]), _wanted(request))
        return answer(request, lambda: output_html(self._visits.of(request), view), view)

    @operation("GET", "/ui/live/jobs/{job}/output", None, Role.READER)
    async def output_live(self, request: Request) -> Response:
        """What a worker writes, again and again, as server-sent events."""
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
