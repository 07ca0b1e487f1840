"""Lets a client ask what a change would do: the same request below /v1/dry-run instead of /v1.

Always: a dry run is checked like the change itself, from the sender's role to the records. It has a
path of its own, so that a master of an older release refuses it instead of making the change.
"""

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from torrentdist.host.http.operation import DRY_RUN
from torrentdist.model.wire.headers import DRY_RUN_PATH

_API: Final = "/v1/"


class DryRuns:
    """Marks requests for a dry run, and passes them on under the path of the change."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(DRY_RUN_PATH):
            rest, raw = scope["path"].removeprefix(DRY_RUN_PATH), scope["raw_path"]
            meant = raw.replace(DRY_RUN_PATH.encode(), _API.encode(), 1)
            scope = {**scope, "path": _API + rest, "raw_path": meant, DRY_RUN: True}
        await self._app(scope, receive, send)
