"""The loopback gateway of a host: bundles for the programs on this machine, and the host's own
controls.

Always: only published content leaves it, confined to its bundle.
Never: listen beyond loopback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from torrentdist.host.http.openapi import with_description
from torrentdist.host.http.operation import Router, api_app, operations_of
from torrentdist.host.http.web import CutShort
from torrentdist.host.telemetry.audit_log import Audit
from torrentdist.supervisor.gateway.bundle_server import on_bundle_error
from torrentdist.supervisor.gateway.callers import GatewayCallers, JobCallers, user_ids
from torrentdist.supervisor.hub.hub_api import HUB_PATH, on_hub_error


def gateway_app(
    routers: Sequence[Router],
    users: Sequence[str],
    jobs: JobCallers,
    cut: Callable[[tuple[str, int]], None],
    audit: Audit,
) -> ASGIApp:
    """Builds the gateway. `users`: names or numbers of the users that may use it; empty: all of
    this host. `jobs`: the jobs whose users and tokens it knows.

    `cut` resets the connection of a client whose answer cannot be finished.
    """
    operations = with_description(operations_of(*routers), "torrentdist gateway")
    app = api_app(operations, on_error=_on_error, audit=audit)
    return CutShort(GatewayCallers(app, user_ids(users), jobs, audit), cut)


async def _on_error(request: Request, exc: Exception) -> Response:
    """Answers with an error as the library that asked for this path understands it."""
    answer = on_hub_error if request.url.path.startswith(HUB_PATH) else on_bundle_error
    return await answer(request, exc)
