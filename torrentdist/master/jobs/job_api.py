"""Jobs over HTTP: submit them, steer them, read their state; and what supervisors say and ask.

Always: the leader alone answers what workers do; `?any=true` asks any master for the records
instead.
"""

from __future__ import annotations

from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Handler, Operation, body_of
from torrentdist.host.http.web import decode_body, flag_parameter, json_response, number_parameter
from torrentdist.master.http.mutation_requests import (
    LONGEST_WAIT,
    MAX_JSON_BYTES,
    answered,
    mutation_of,
    page_of,
    records_for,
)
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.jobs.job_loop import JobLoop
from torrentdist.master.jobs.job_operations import find_job
from torrentdist.master.jobs.job_requests import JobRequests
from torrentdist.master.jobs.lifecycle import Activate, Deactivate, Kill, Rebalance
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.reads.saved_records import Records
from torrentdist.model import ids
from torrentdist.model.access.token_messages import HostPassesView
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.wire.ha_views import OutageView
from torrentdist.model.wire.job_messages import HeartbeatAnswer, HeartbeatBody, JobView, SubmitBody
from torrentdist.security.authorization import reads_everything
from torrentdist.security.certificate_identity import CertificateRole
from torrentdist.security.principal import Principal, Role


class JobApi:
    def __init__(self, jobs: JobRequests, leadership: Leadership, records: Records) -> None:
        self._jobs = jobs
        self._leadership = leadership
        self._records = records

    def operations(self) -> Iterator[Operation]:
        one = "/v1/jobs/{job}"
        yield Operation("GET", "/v1/jobs", self.jobs, list[JobView], "every job", Role.READER, paged=True)
        summary = "one job, by id or by the name of a live one"
        yield Operation("GET", one, self.job, JobView, summary, Role.JOB)
        summary = "a pass for what hosts keep of the job's output"
        yield Operation("GET", f"{one}/pass", self.output_pass, HostPassesView, summary, Role.READER)
        yield Operation(
            "POST",
            "/v1/jobs",
            self.submit,
            JobView,
            "submit a job whose bundle is here",
            Role.SUBMITTER,
            body=SubmitBody,
            max_body=MAX_JSON_BYTES,
            changes=True,
            dry_runs=True,
            target=self._submitted,
        )
        summary = "let its workers run"
        yield self._steering("POST", f"{one}/activate", self.activate, summary)
        summary = "stop its workers and keep their places"
        yield self._steering("POST", f"{one}/deactivate", self.deactivate, summary)
        summary = "spread it anew after ?wait= with ?workers="
        yield self._steering("POST", f"{one}/rebalance", self.rebalance, summary)
        summary = "deactivate now, remove after ?wait="
        yield self._steering("DELETE", one, self.kill, summary)

    def _steering(self, method: str, path: str, handler: Handler, summary: str) -> Operation:
        role = Role.SUBMITTER
        target = self._bundle_of_job
        return Operation(method, path, handler, JobView, summary, role, changes=True, dry_runs=True, target=target)

    async def _submitted(self, request: Request) -> tuple[BundleId]:
        self._leadership.fence()  # refuse before the body is read
        return (ids.bundle_id(decode_body(await body_of(request), SubmitBody).bundle),)

    async def _bundle_of_job(self, request: Request) -> tuple[BundleId]:
        self._leadership.fence()
        return (find_job(records_for(request, self._records), self._name(request)).record.bundle,)

    async def jobs(self, request: Request) -> Response:
        self._only_leader_unless_any(request)
        return json_response(self._jobs.views(records_for(request, self._records), page_of(request)))

    async def job(self, request: Request) -> Response:
        self._only_leader_unless_any(request)
        name, snapshot = request.path_params["job"], records_for(request, self._records)
        if flag_parameter(request, "events"):
            return json_response(await self._jobs.told(snapshot, name))
        return json_response(self._jobs.view(snapshot, name))

    async def output_pass(self, request: Request) -> Response:
        """Hosts keep the output of a job that is gone, so the job need not exist. Nobody knows any
        more which bundles such a job had, so its output is for those who read everything."""
        job = ids.job_id(request.path_params["job"])
        if not reads_everything(principal_of(request)):
            find_job(records_for(request, self._records), job)
        hosts, secrets = self._records.snapshot().supervisors, self._records.secrets
        return json_response(
            HostPassesView(hosts={host: secrets.new_pass(host, f"/v1/host/jobs/{job}/") for host in hosts})
        )

    async def submit(self, request: Request) -> Response:
        self._leadership.fence()  # refuse before the body is read
        raw = await body_of(request)
        body = decode_body(raw, SubmitBody)
        return answered(await self._jobs.submit(await mutation_of(request, raw), body))

    async def activate(self, request: Request) -> Response:
        now = self._now()
        return answered(await self._jobs.happen(await mutation_of(request), self._name(request), Activate(now)))

    async def deactivate(self, request: Request) -> Response:
        now = self._now()
        return answered(await self._jobs.happen(await mutation_of(request), self._name(request), Deactivate(now)))

    async def rebalance(self, request: Request) -> Response:
        wait = number_parameter(request, "wait", 0.0, low=0.0, high=LONGEST_WAIT)
        workers = int(number_parameter(request, "workers", 0, low=0, high=10_000))
        event = Rebalance(self._now(), wait, workers)
        return answered(await self._jobs.happen(await mutation_of(request), self._name(request), event))

    async def kill(self, request: Request) -> Response:
        name = self._name(request)
        now = self._now()
        spec = find_job(self._records.snapshot(), name).record.spec
        default = spec.kill_wait_secs if spec is not None else 30.0
        wait = number_parameter(request, "wait", default, low=0.0, high=LONGEST_WAIT)
        return answered(await self._jobs.happen(await mutation_of(request), name, Kill(now, wait)))

    def _only_leader_unless_any(self, request: Request) -> None:
        """Workers report to the leader alone. Other masters know the records and the places."""
        if not flag_parameter(request, "any"):
            self._leadership.fence()

    def _name(self, request: Request) -> str:
        return ids.job_id(request.path_params["job"])

    def _now(self) -> float:
        self._leadership.fence()
        return self._jobs.server_now()


class SupervisorApi:
    """Heartbeats, whether a master reaches ZooKeeper, and the route that drains a supervisor."""

    def __init__(self, jobs: JobRequests, loop: JobLoop, heartbeats: Heartbeats, leadership: Leadership) -> None:
        self._jobs = jobs
        self._loop = loop
        self._heartbeats = heartbeats
        self._leadership = leadership

    def operations(self) -> Iterator[Operation]:
        drain = "/v1/supervisors/{supervisor}/drain"
        for method, summary in (("PUT", "place nothing there any more"), ("DELETE", "undo drain")):
            yield Operation(method, drain, self.drain, None, summary, Role.OPERATOR, changes=True, dry_runs=True)
        yield Operation(
            "POST",
            "/v1/heartbeat",
            self.heartbeat,
            HeartbeatAnswer,
            "what a supervisor's workers do, to the leader",
            Role.HOST,
            body=HeartbeatBody,
            max_body=MAX_JSON_BYTES,
        )
        summary = "whether it sees ZooKeeper, asked by a host that sees none"
        yield Operation("GET", "/v1/sight", self.outage_view, OutageView, summary, Role.READER)

    async def drain(self, request: Request) -> Response:
        supervisor = ids.supervisor_id(request.path_params["supervisor"])
        self._leadership.fence()
        return answered(await self._jobs.drain(await mutation_of(request), supervisor, request.method == "PUT"))

    async def heartbeat(self, request: Request) -> Response:
        body = decode_body(await body_of(request), HeartbeatBody)
        _expect_own_word(principal_of(request), body.supervisor)
        return json_response(self._heartbeats.hear(body))

    async def outage_view(self, request: Request) -> Response:
        supervisor = ids.supervisor_id(request.query_params.get("supervisor", ""))
        within = number_parameter(request, "within", 1.0, low=0.0, high=10.0)
        return json_response(await self._loop.outage_view(supervisor, within))


def _expect_own_word(sender: Principal, supervisor: SupervisorId) -> None:
    """Raises an error if a host with a certificate speaks for another one."""
    holder = sender.certificate
    if holder is not None and (holder.role, holder.id) != (CertificateRole.SUPERVISOR, supervisor):
        raise TorrentdistError("forbidden", detail=f"the certificate of {holder.id} does not speak for {supervisor}")
