"""The audit of one master over HTTP. A client asks every master, and merges what they say."""

from __future__ import annotations

from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Operation
from torrentdist.host.http.web import json_response, number_parameter
from torrentdist.master.access.audit_trail import MOST_ENTRIES, AuditTrail
from torrentdist.master.http.mutation_requests import LONGEST_WAIT
from torrentdist.model.access.audit_messages import AuditView
from torrentdist.security.principal import Role

DEFAULT_ENTRIES = 1000


class AuditApi:
    def __init__(self, trail: AuditTrail) -> None:
        self._trail = trail

    def operations(self) -> Iterator[Operation]:
        summary = "who changed what at this master, the newest first"
        yield Operation("GET", "/v1/audit", self.audit, list[AuditView], summary, Role.READER)

    async def audit(self, request: Request) -> Response:
        within = number_parameter(request, "within", LONGEST_WAIT, low=0.0, high=LONGEST_WAIT)
        most = int(number_parameter(request, "n", DEFAULT_ENTRIES, low=1, high=MOST_ENTRIES))
        who, bundle = request.query_params.get("who", ""), request.query_params.get("bundle", "")
        return json_response(self._trail.entries(principal_of(request), within, who, bundle, most))
