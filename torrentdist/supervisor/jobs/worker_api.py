"""The workers of this host, over the gateway: their state, their heartbeats, and what isolation
decides about them."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.declared_routes import DeclaredRoutes, operation
from torrentdist.host.http.web import json_response
from torrentdist.model import ids
from torrentdist.model.wire.doctor_views import IsolationView
from torrentdist.model.wire.job_messages import WorkerReport
from torrentdist.security.authorization import Role, may_read, reads_everything
from torrentdist.supervisor.jobs.host_workers import HostWorkers


class WorkerApi(DeclaredRoutes):
    def __init__(self, jobs: HostWorkers) -> None:
        self._jobs = jobs

    @operation("GET", "/v1/host/workers", list[WorkerReport], Role.READER)
    async def workers(self, request: Request) -> Response:
        """The workers that this host has a place for."""
        sender = principal_of(request)
        reports = self._jobs.reports()
        if not reads_everything(sender):
            needs = {report.job: self._jobs.bundles_of([report.job]) for report in reports}
            reports = [one for one in reports if all(may_read(sender, bundle) for bundle in needs[one.job])]
        return json_response(reports)

    @operation("GET", "/v1/host/isolation", IsolationView, Role.READER)
    async def isolation(self, _: Request) -> Response:
        """How this host isolates the runs of workers, and who reads its bundles as files."""
        return json_response(await asyncio.to_thread(self._jobs.isolation))

    @operation("POST", "/v1/host/jobs/{job}/{worker:int}/heartbeat", None, Role.JOB, statuses=(204,))
    async def heartbeat(self, request: Request) -> Response:
        """A worker of this host says that it lives."""
        self._jobs.beat((ids.job_id(request.path_params["job"]), request.path_params["worker"]))
        return Response(status_code=204)
