"""Jobs over HTTP: submit them, steer them, read their state; and what supervisors say and ask.

Always: the leader alone answers what workers do; `?any=true` asks any master for the records
instead.
"""

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import body_of
from torrentdist.host.http.web import decode_body, flag_parameter, json_response, number_parameter
from torrentdist.master.http.routes import (
    MAX_JSON_BYTES,
    RequestedChange,
    Routes,
    change,
    mutation_of,
    operation,
    page_of,
    records_for,
    records_to_list,
    seconds_of,
)
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.jobs.job_loop import JobLoop
from torrentdist.master.jobs.job_operations import find_job
from torrentdist.master.jobs.job_requests import JobRequests
from torrentdist.master.jobs.lifecycle import Activate, Deactivate, Event, Kill, Rebalance
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.reads.saved_records import Records
from torrentdist.model import ids
from torrentdist.model.access.token_messages import HostPassesView
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.records import JobRecord
from torrentdist.model.wire.ha_views import OutageView
from torrentdist.model.wire.job_messages import HeartbeatAnswer, HeartbeatBody, JobView, SubmitBody
from torrentdist.security.authorization import Principal, Role, may_read, reads_everything
from torrentdist.security.certificate_identity import CertificateRole
from torrentdist.security.passes import OUTPUT_SECS

_JOB: Final = "torrentdist.job"
"""The key in a request's scope of the job whose bundle was checked."""
_KEPT: Final = "torrentdist.kept_answer"
"""The key of the answer to an earlier attempt, if the job is gone since."""


class JobApi(Routes, msgspec.Struct, frozen=True):
    requests: JobRequests
    leadership: Leadership
    records: Records

    async def _submitted(self, request: Request) -> tuple[BundleId]:
        self.leadership.fence()  # refuse before the body is read
        return (ids.bundle_id(decode_body(await body_of(request), SubmitBody).bundle),)

    async def _bundle_of_job(self, request: Request) -> tuple[BundleId]:
        """Returns the bundle of the job that the path names, and notes the job for the handler: by
        then the name may lead to another one. A job that is gone is that of the kept answer."""
        self.leadership.fence()
        try:
            request.scope[_JOB] = job = self._found(request)
            return (job.bundle,)
        except TorrentdistError as error:
            kept = await self.requests.recall(await mutation_of(request)) if error.code == "job_not_found" else None
            bundle = None if kept is None else decode_body(kept, JobView).bundle
            if bundle is None or not may_read(principal_of(request), bundle):
                raise
            request.scope[_KEPT] = kept
            return (bundle,)

    def _found(self, request: Request) -> JobRecord:
        """Returns the job that was checked, else the one that the path names, among those that the
        sender may see. A name may be that of another's job too."""
        if _JOB in request.scope:
            job: JobRecord = request.scope[_JOB]
            return job
        return find_job(records_for(request, self.records), ids.job_id(request.path_params["job"])).record

    @operation("GET", "/v1/jobs", list[JobView], Role.READER, paged=True)
    async def jobs(self, request: Request) -> Response:
        """Every job."""
        self._only_leader_unless_any(request)
        return json_response(self.requests.views(records_to_list(request, self.records), page_of(request)))

    @operation("GET", "/v1/jobs/{job}", JobView, Role.JOB)
    async def job(self, request: Request) -> Response:
        """One job, by id or by the name of a live one."""
        self._only_leader_unless_any(request)
        name, snapshot = request.path_params["job"], records_for(request, self.records)
        if flag_parameter(request, "events"):
            return json_response(await self.requests.told(snapshot, name))
        return json_response(self.requests.view(snapshot, name))

    @operation("GET", "/v1/jobs/{job}/pass", HostPassesView, Role.READER)
    async def output_pass(self, request: Request) -> Response:
        """A pass for what hosts keep of the job's output.

        Hosts keep the output of a job that is gone, so the job need not exist. Nobody knows any
        more which bundles such a job had, so its output is for those who read everything.
        """
        job = ids.job_id(request.path_params["job"])
        if not reads_everything(principal_of(request)) and job not in records_for(request, self.records).jobs:
            raise TorrentdistError("job_not_found", id=job)  # its name may be the id of another's job
        hosts, secrets = self.records.snapshot().supervisors, self.records.secrets
        return json_response(
            HostPassesView(hosts={host: secrets.new_pass(host, f"/v1/host/jobs/{job}/", OUTPUT_SECS) for host in hosts})
        )

    @change("POST", "/v1/jobs", JobView, Role.SUBMITTER, body=SubmitBody, max_body=MAX_JSON_BYTES, target="_submitted")
    async def submit(self, asked: RequestedChange) -> bytes:
        """Submit a job whose bundle is here."""
        return await self.requests.submit(asked.mutation, asked.body, principal_of(asked.request))

    @change("POST", "/v1/jobs/{job}/activate", JobView, Role.SUBMITTER, target="_bundle_of_job")
    async def activate(self, asked: RequestedChange) -> bytes:
        """Let its workers run."""
        return await self._happen(asked, Activate(self.requests.server_now()))

    @change("POST", "/v1/jobs/{job}/deactivate", JobView, Role.SUBMITTER, target="_bundle_of_job")
    async def deactivate(self, asked: RequestedChange) -> bytes:
        """Stop its workers and keep their places."""
        return await self._happen(asked, Deactivate(self.requests.server_now()))

    @change("POST", "/v1/jobs/{job}/rebalance", JobView, Role.SUBMITTER, target="_bundle_of_job")
    async def rebalance(self, asked: RequestedChange) -> bytes:
        """Spread it anew after ?wait= with ?workers=."""
        wait = seconds_of(asked.request, "wait")
        workers = int(number_parameter(asked.request, "workers", 0, low=0, high=10_000))
        return await self._happen(asked, Rebalance(self.requests.server_now(), wait, workers))

    @change("DELETE", "/v1/jobs/{job}", JobView, Role.SUBMITTER, target="_bundle_of_job")
    async def kill(self, asked: RequestedChange) -> bytes:
        """Deactivate now, remove after ?wait=."""
        spec = None if _KEPT in asked.request.scope else self._found(asked.request).spec
        wait = seconds_of(asked.request, "wait", spec.kill_wait_secs if spec is not None else 30.0)
        return await self._happen(asked, Kill(self.requests.server_now(), wait))

    async def _happen(self, asked: RequestedChange, event: Event) -> bytes:
        if _KEPT in asked.request.scope:
            kept: bytes = asked.request.scope[_KEPT]
            return kept
        return await self.requests.happen(asked.mutation, self._found(asked.request).id, event)

    def _only_leader_unless_any(self, request: Request) -> None:
        """Workers report to the leader alone. Other masters know the records and the places."""
        if not flag_parameter(request, "any"):
            self.leadership.fence()


class SupervisorApi(Routes, msgspec.Struct, frozen=True):
    """Heartbeats, whether a master reaches ZooKeeper, and the route that drains a supervisor."""

    requests: JobRequests
    loop: JobLoop
    heartbeats: Heartbeats
    leadership: Leadership

    @change("PUT", "/v1/supervisors/{supervisor}/drain", None, Role.OPERATOR)
    @change("DELETE", "/v1/supervisors/{supervisor}/drain", None, Role.OPERATOR, summary="undo drain")
    async def drain(self, asked: RequestedChange) -> bytes:
        """Place nothing there any more."""
        supervisor = ids.supervisor_id(asked.request.path_params["supervisor"])
        return await self.requests.drain(asked.mutation, supervisor, asked.request.method == "PUT")

    @operation("POST", "/v1/heartbeat", HeartbeatAnswer, Role.HOST, body=HeartbeatBody, max_body=MAX_JSON_BYTES)
    async def heartbeat(self, request: Request) -> Response:
        """What a supervisor's workers do, to the leader."""
        body = decode_body(await body_of(request), HeartbeatBody)
        _expect_own_word(principal_of(request), body.supervisor)
        return json_response(self.heartbeats.hear(body))

    @operation("GET", "/v1/sight", OutageView, Role.READER)
    async def outage_view(self, request: Request) -> Response:
        """Whether it sees ZooKeeper, asked by a host that sees none."""
        supervisor = ids.supervisor_id(request.query_params.get("supervisor", ""))
        within = number_parameter(request, "within", 1.0, low=0.0, high=10.0)
        return json_response(await self.loop.outage_view(supervisor, within))


def _expect_own_word(sender: Principal, supervisor: SupervisorId) -> None:
    """Raises an error if a host with a certificate speaks for another one."""
    holder = sender.certificate
    if holder is not None and (holder.role, holder.id) != (CertificateRole.SUPERVISOR, supervisor):
        raise TorrentdistError("forbidden", detail=f"the certificate of {holder.id} does not speak for {supervisor}")
