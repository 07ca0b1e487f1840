"""Routes that supervisors call (heartbeats, and whether a master reaches ZooKeeper), and the route
that drains one."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Operation, body_of
from torrentdist.host.http.web import decode_body, json_response, number_parameter
from torrentdist.master.http.mutation_requests import MAX_JSON_BYTES, answered, mutation_of
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.jobs.job_loop import JobLoop
from torrentdist.master.jobs.job_requests import JobRequests
from torrentdist.master.leading.leadership import Leadership
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import SupervisorId
from torrentdist.model.wire.ha_views import OutageView
from torrentdist.model.wire.job_messages import HeartbeatAnswer, HeartbeatBody
from torrentdist.security.certificate_identity import CertificateRole
from torrentdist.security.principal import Principal, Role


class SupervisorApi:
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
