"""Counts the answers of a daemon to HTTP requests, by class of status.

Always: health checks do not count, since a 503 is a good answer of them.
Never: look at more of an answer than its status.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torrentdist.host.http.own_site import HEALTH_PATHS
from torrentdist.host.telemetry.metrics import Metrics


class AnswerCounts:
    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in HEALTH_PATHS:
            await self._app(scope, receive, send)
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.count("http_answers_total", status=f"{min(max(message['status'] // 100, 2), 5)}xx")
            await send(message)

        await self._app(scope, receive, counted)
