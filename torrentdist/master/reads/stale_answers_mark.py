"""Marks every answer of the API that comes from old records: `X-Stale: <seconds>`."""

from __future__ import annotations

from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

STALE_HEADER = "X-Stale"


class MarkStale:
    def __init__(self, app: ASGIApp, stale_secs: Callable[[], float | None]) -> None:
        self._app = app
        self._stale_secs = stale_secs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        age = self._stale_secs() if scope["type"] == "http" and scope["path"].startswith("/v1/") else None

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[STALE_HEADER] = f"{age:.0f}"
            await send(message)

        await self._app(scope, receive, send if age is None else marked)
