"""Signing in and out of the console, and the two files that its pages load."""

from collections.abc import Iterator
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from torrentdist.charts.svg import style
from torrentdist.host.http.operation import Operation
from torrentdist.master.console.visits import MOST_FORM_BYTES, Sessions, form_of, is_console, session_cookie
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.principal import Role

_FILES = Path(__file__).parents[1]


class SessionPages:
    """`secure`: whether this master serves HTTPS."""

    def __init__(self, sessions: Sessions, secure: bool) -> None:
        self._sessions = sessions
        self._secure = secure
        self._assets = {
            "console.css": (style() + _FILES.joinpath("console.css").read_text(encoding="utf-8"), "text/css"),
            "console.js": (_FILES.joinpath("console.js").read_text(encoding="utf-8"), "text/javascript"),
        }

    def operations(self) -> Iterator[Operation]:
        yield Operation("GET", "/ui/assets/{name}", self.asset, None, "what the pages load", Role.ANYONE)
        summary = "a session of the console, for a token"
        yield Operation("POST", "/ui/sign-in", self.sign_in, None, summary, Role.ANYONE, max_body=MOST_FORM_BYTES)
        summary = "the end of a session in this browser"
        yield Operation("POST", "/ui/sign-out", self.sign_out, None, summary, Role.READER, max_body=MOST_FORM_BYTES)

    async def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._assets:
            raise TorrentdistError("not_found", what=f"the file {name[:100]!r}")
        content, kind = self._assets[name]
        return Response(content, media_type=kind, headers={"cache-control": "max-age=60"})

    async def sign_in(self, request: Request) -> Response:
        fields = await form_of(request)
        token = fields.get("token", "").strip()
        if not token:
            raise TorrentdistError("invalid_request", detail="the form has no token")
        session = self._sessions.sign_in(token)
        back = fields.get("back", "")
        target = back if is_console(back) and "\\" not in back else "/ui/"
        return self._answer(target, session)

    async def sign_out(self, request: Request) -> Response:
        self._sessions.expect_own_form(request, await form_of(request))
        return self._answer("/ui/", "")

    def _answer(self, target: str, session: str) -> Response:
        return RedirectResponse(target, 303, {"set-cookie": session_cookie(session, self._secure)})
