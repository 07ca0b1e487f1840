"""The audit of one master over HTTP. A client asks every master, and merges what they say."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.web import json_response, number_parameter
from torrentdist.master.access.audit_trail import MOST_ENTRIES, AuditTrail
from torrentdist.master.http.mutation_requests import LONGEST_WAIT, seconds_of
from torrentdist.master.http.routes import Routes, operation
from torrentdist.model.access.audit_messages import AuditView
from torrentdist.security.principal import Role

DEFAULT_ENTRIES = 1000


@dataclass(frozen=True)
class AuditApi(Routes):
    trail: AuditTrail

    @operation("GET", "/v1/audit", list[AuditView], Role.READER)
    async def audit(self, request: Request) -> Response:
        """The changes at this master with their authors, the newest first."""
        within = seconds_of(request, "within", LONGEST_WAIT)
        most = int(number_parameter(request, "n", DEFAULT_ENTRIES, low=1, high=MOST_ENTRIES))
        who, bundle = request.query_params.get("who", ""), request.query_params.get("bundle", "")
        return json_response(self.trail.entries(principal_of(request), within, who, bundle, most))
