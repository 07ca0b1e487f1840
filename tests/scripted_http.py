"""Masters and hosts that answer by a script, which gets httpx requests and returns httpx
responses."""

from __future__ import annotations

from collections.abc import Callable

import httpx

from torrentdist.http.access import AccessRule, anonymously
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import Answer, ConnectError, Headers, Patience, SentRequest


class ScriptedHttp(Http):
    """An Http that sends nothing. If the script raises httpx.ConnectError, no process listens
    there."""

    def __init__(self, script: Callable[[httpx.Request], httpx.Response], access: AccessRule = anonymously) -> None:
        super().__init__(access=access)
        self._script = script

    async def exchange(self, asked: SentRequest, patience: Patience) -> Answer:
        try:
            told = self._script(
                httpx.Request(asked.method, asked.url, headers=dict(asked.headers), content=asked.content)
            )
        except httpx.ConnectError as exc:
            raise ConnectError(str(exc)) from exc
        return Answer(told.status_code, Headers(dict(told.headers)), told.content, asked.url)
