"""What other hosts may ask of this one, on api.listen: its workers' output, and metafiles of what it has or fetches.

Always holds: nothing is answered without the cluster's token. Must not do: change anything; all here is for reading.
"""

from __future__ import annotations

import asyncio

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from torrentdist.bundle.store import Store
from torrentdist.host.web import BearerAuth, on_http_error, on_torrentdist_error, on_unexpected_error
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.output_api import OutputApi


def outside_app(output: OutputApi, store: Store, token: str | None) -> ASGIApp:
    async def metafile(request: Request) -> Response:
        digest = ids.digest(request.path_params["digest"])
        raw = await asyncio.to_thread(store.raw_metafile, digest)
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
