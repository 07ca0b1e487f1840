"""What other hosts may ask of this one, on api.listen: its workers' output, and metafiles of what it has or fetches.

Always holds: nothing is answered without the cluster's token. Must not do: change anything; all here is for reading.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from torrentdist.host.http.web import (
    BearerAuth,
    number_parameter,
    on_http_error,
    on_torrentdist_error,
    on_unexpected_error,
)
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.supervisor.gateway.output_api import OutputApi

RawMetafile = Callable[[Digest, float], Awaitable[bytes | None]]
"""The metafile of a digest, waited for so many seconds."""
LONGEST_WAIT_SECS = 60.0


def outside_app(output: OutputApi, raw_metafile: RawMetafile, token: str | None) -> ASGIApp:
    async def metafile(request: Request) -> Response:
        digest = ids.digest(request.path_params["digest"])
        within = number_parameter(request, "wait", 0.0, low=0.0, high=LONGEST_WAIT_SECS)
        raw = await raw_metafile(digest, within)
        if raw is None:
            raise TorrentdistError("not_found", what=f"a metafile of {digest} on this host")
        return Response(raw, media_type="application/x-bittorrent")

    handlers = {
        TorrentdistError: on_torrentdist_error,
        404: on_http_error,
        405: on_http_error,
        Exception: on_unexpected_error,
    }
    routes = [*output.routes(), Route("/v1/metafiles/{digest}", metafile)]
    app = Starlette(routes=routes, exception_handlers=handlers)
    return BearerAuth(app, token, ()) if token is not None else app
