"""Health and metrics of a daemon over HTTP, the same for masters and supervisors.

Always: `/livez` answers while the process does, whatever else is wrong; `/readyz` names each
failing check.
"""

from collections.abc import Callable, Iterator

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.operation import Operation
from torrentdist.host.http.web import json_response
from torrentdist.host.telemetry.metrics import Metrics
from torrentdist.model.wire.cluster_messages import HealthView
from torrentdist.security.authorization import Role


class HealthApi:
    """`failing` returns the checks that fail now, each with its reason. `role`: the lowest one that
    sees more than that the process lives."""

    def __init__(self, failing: Callable[[], dict[str, str]], metrics: Metrics, role: Role = Role.READER) -> None:
        self._role = role
        self._failing = failing
        self._metrics = metrics

    def operations(self) -> Iterator[Operation]:
        yield Operation("GET", "/livez", self.livez, None, "the process answers", Role.ANYONE)
        summary = "whether it can do its work; failing checks by name"
        yield Operation("GET", "/readyz", self.readyz, HealthView, summary, self._role, statuses=(200, 503))
        yield Operation("GET", "/metrics", self.metrics, None, "Prometheus text", self._role)

    async def livez(self, _: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def readyz(self, _: Request) -> Response:
        failing = self._failing()
        return json_response(HealthView(ok=not failing, failing=failing), status=503 if failing else 200)

    async def metrics(self, _: Request) -> Response:
        return Response(self._metrics.render(), media_type="text/plain; version=0.0.4")
