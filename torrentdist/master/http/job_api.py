"""The part of a master's HTTP API that is about jobs and the supervisors that run them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.web import decode_body, json_response, number_parameter, read_body
from torrentdist.master.http.mutation_requests import answered, mutation_of, page_of
from torrentdist.master.http.openapi import Operation
from torrentdist.master.jobs.job_operations import find_job
from torrentdist.master.jobs.lifecycle import Activate, Deactivate, Kill, Rebalance
from torrentdist.model import ids
from torrentdist.model.wire.ha_views import SightView
from torrentdist.model.wire.job_messages import HeartbeatAnswer, HeartbeatBody, JobView, SubmitBody
from torrentdist.model.wire.prune_views import UnusedView

if TYPE_CHECKING:
    from torrentdist.master.daemon import Master

MAX_BODY_BYTES = 4 * 1024 * 1024
LONGEST_WAIT = 10 * 365 * 86400.0


class JobApi:
    def __init__(self, master: Master) -> None:
        self._m = master

    async def jobs(self, request: Request) -> Response:
        self._only_leader_unless_any(request)
        return json_response(self._m.jobs.views(self._m.snapshot(), page_of(request)))

    async def job(self, request: Request) -> Response:
        self._only_leader_unless_any(request)
        name = request.path_params["job"]
        if request.query_params.get("events") == "true":
            return json_response(await self._m.jobs.told(self._m.snapshot(), name))
        return json_response(self._m.jobs.view(self._m.snapshot(), name))

    async def submit(self, request: Request) -> Response:
        self._m.leadership.fence()  # refuse before the body is read
        raw = await read_body(request, MAX_BODY_BYTES)
        body = decode_body(raw, SubmitBody)
        return answered(await self._m.jobs.submit(await mutation_of(request, raw), body))

    async def activate(self, request: Request) -> Response:
        now = self._now()
        return answered(await self._m.jobs.happen(await mutation_of(request), self._name(request), Activate(now)))

    async def deactivate(self, request: Request) -> Response:
        now = self._now()
        return answered(await self._m.jobs.happen(await mutation_of(request), self._name(request), Deactivate(now)))

    async def rebalance(self, request: Request) -> Response:
        wait = number_parameter(request, "wait", 0.0, low=0.0, high=LONGEST_WAIT)
        workers = int(number_parameter(request, "workers", 0, low=0, high=10_000))
        event = Rebalance(self._now(), wait, workers)
        return answered(await self._m.jobs.happen(await mutation_of(request), self._name(request), event))

    async def kill(self, request: Request) -> Response:
        name = self._name(request)
        now = self._now()
        spec = find_job(self._m.snapshot(), name).record.spec
        default = spec.kill_wait_secs if spec is not None else 30.0
        wait = number_parameter(request, "wait", default, low=0.0, high=LONGEST_WAIT)
        return answered(await self._m.jobs.happen(await mutation_of(request), name, Kill(now, wait)))

    async def drain(self, request: Request) -> Response:
        supervisor = ids.supervisor_id(request.path_params["supervisor"])
        self._m.leadership.fence()
        return answered(await self._m.jobs.drain(await mutation_of(request), supervisor, request.method == "PUT"))

    async def prune(self, request: Request) -> Response:
        older_than = number_parameter(request, "older_than", 0.0, low=0.0, high=LONGEST_WAIT)
        dry_run = request.query_params.get("dry_run") == "true"
        self._m.leadership.fence()
        return answered(await self._m.jobs.prune(await mutation_of(request), older_than, dry_run))

    async def heartbeat(self, request: Request) -> Response:
        body = decode_body(await read_body(request, MAX_BODY_BYTES), HeartbeatBody)
        return json_response(self._m.jobs.hear(body))

    async def sight(self, request: Request) -> Response:
        supervisor = ids.supervisor_id(request.query_params.get("supervisor", ""))
        within = number_parameter(request, "within", 1.0, low=0.0, high=10.0)
        return json_response(await self._m.jobs.sight(supervisor, within))

    def _only_leader_unless_any(self, request: Request) -> None:
        """What the workers do is reported to the leader; others know the records and the places only."""
        if request.query_params.get("any") != "true":
            self._m.leadership.fence()

    def _name(self, request: Request) -> str:
        return ids.job_id(request.path_params["job"])

    def _now(self) -> float:
        self._m.leadership.fence()
        return self._m.jobs.server_now()


JOB_OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/v1/jobs", "jobs", list[JobView], "every job", paged=True),
    Operation("GET", "/v1/jobs/{job}", "job", JobView, "one job, by id or by the name of a live one"),
    Operation("POST", "/v1/jobs", "submit", JobView, "submit a job whose bundle is here", body=SubmitBody),
    Operation("POST", "/v1/jobs/{job}/activate", "activate", JobView, "let its workers run"),
    Operation("POST", "/v1/jobs/{job}/deactivate", "deactivate", JobView, "stop its workers and keep their places"),
    Operation("POST", "/v1/jobs/{job}/rebalance", "rebalance", JobView, "spread it anew after ?wait= with ?workers="),
    Operation("DELETE", "/v1/jobs/{job}", "kill", JobView, "deactivate now, remove after ?wait="),
    Operation("PUT", "/v1/supervisors/{supervisor}/drain", "drain", None, "place nothing there any more"),
    Operation("DELETE", "/v1/supervisors/{supervisor}/drain", "drain", None, "undo drain"),
    Operation("POST", "/v1/prune", "prune", UnusedView, "remove the bundles that nobody uses"),
    Operation("POST", "/v1/heartbeat", "heartbeat", HeartbeatAnswer, "what a supervisor's workers do, to the leader",
              body=HeartbeatBody),
    Operation("GET", "/v1/sight", "sight", SightView, "whether it sees ZooKeeper, asked by a host that sees none"),
)  # fmt: skip
