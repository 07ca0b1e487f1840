"""The history of distributions over HTTP: for people, and for other masters."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.web import json_response, number_parameter
from torrentdist.master.history.distribution_history import DistributionHistory
from torrentdist.master.history.distribution_runs import MOST_OPEN, MOST_SUMMARIES
from torrentdist.master.http.routes import Routes, operation
from torrentdist.model import ids
from torrentdist.model.wire.fleet_messages import DistributionSummary
from torrentdist.security.authorization import Role, check_master, may_read

MOST = MOST_OPEN + MOST_SUMMARIES


class HistoryApi(Routes):
    def __init__(self, history: DistributionHistory) -> None:
        self._history = history

    @operation("GET", "/v1/distributions", list[DistributionSummary], Role.READER)
    async def distributions(self, request: Request) -> Response:
        """What distributions did, the newest first."""
        most = int(number_parameter(request, "n", MOST, low=1, high=MOST))
        wanted = request.query_params.get("bundle", "")
        sender, found = principal_of(request), self._history.summaries(ids.bundle_id(wanted) if wanted else None)
        return json_response([one for one in found if may_read(sender, one.bundle)][:most])

    @operation("GET", "/v1/distributions/copy", None, Role.HOST)
    async def copy(self, request: Request) -> Response:
        """All that this master keeps of distributions, for another master."""
        check_master(principal_of(request), "the copy of the history is")
        return Response(await asyncio.to_thread(self._history.copy), media_type="application/json")
