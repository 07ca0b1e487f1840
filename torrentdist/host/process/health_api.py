"""Health and metrics of a daemon over HTTP, the same for masters and supervisors.

Always: `/livez` answers while the process does, whatever else is wrong. The status of `/readyz` is
the same for everybody, because probes of orchestrators have no token; the failing checks are named
only to senders who may read.
"""

from collections.abc import Callable, Iterator

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Operation
from torrentdist.host.http.web import json_response
from torrentdist.host.telemetry.metrics import Metrics
from torrentdist.model.wire.cluster_messages import HealthView
from torrentdist.security.authorization import Role, may_use


class HealthApi:
    """`failing` returns the checks that fail now, each with its reason. `role`: the lowest one that
    sees more than whether the process lives and is ready."""

    def __init__(self, failing: Callable[[], dict[str, str]], metrics: Metrics, role: Role = Role.READER) -> None:
        self._role = role
        self._failing = failing
        self._metrics = metrics

    def operations(self) -> Iterator[Operation]:
        yield Operation("GET", "/livez", self.livez, None, "the process answers", Role.ANYONE)
        summary = "whether it can do its work; failing checks by name, for readers"
        yield Operation("GET", "/readyz", self.readyz, HealthView, summary, Role.ANYONE, statuses=(200, 503))
        yield Operation("GET", "/metrics", self.metrics, None, "Prometheus text", self._role)

    async def livez(self, _: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def readyz(self, request: Request) -> Response:
        failing = self._failing()
        told = failing if may_use(principal_of(request), self._role) else {}
        return json_response(HealthView(ok=not failing, failing=told), status=503 if failing else 200)

    async def metrics(self, _: Request) -> Response:
        return Response(self._metrics.render(), media_type="text/plain; version=0.0.4")
