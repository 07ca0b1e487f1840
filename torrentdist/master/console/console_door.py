"""The door of the console: signing in and out, rules for the browser on every answer under /ui/,
pages for errors, and the two files that all pages load.

Always: a browser loads nothing from elsewhere, runs no inline script, keeps no page, and shows
none within another site's page. A sender who has to prove something gets the sign-in page with
the status of the error.
Never: decide who may do what.
"""

from pathlib import Path
from typing import Final

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torrentdist.charts.svg import style
from torrentdist.master.console.console_markup import Markup, document, hidden, link, text
from torrentdist.master.console.visits import (
    MOST_FORM_BYTES,
    Sessions,
    form_of,
    is_console,
    session_cookie,
    session_in,
    wants_page,
)
from torrentdist.master.http.routes import Routes, operation
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.view import decode_json
from torrentdist.security.authorization import Role

POLICY: Final = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; img-src 'self' data:; "
    "object-src 'none'"
)
RULES: Final = {
    "content-security-policy": POLICY,
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""No `no-referrer`: with it, browsers send forms without their origin."""
HOME: Final = "/ui/"


class _ErrorBody(msgspec.Struct, frozen=True):
    error: str = "internal"
    message: str = ""
    hint: str = ""


class ConsoleDoor:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not (is_console(scope["path"]) or scope["path"] in ("/", "/ui")):
            await self._app(scope, receive, send)
        elif scope["path"] in ("/", "/ui") and scope["method"] in ("GET", "HEAD"):
            await RedirectResponse(HOME, status_code=307)(scope, receive, send)
        else:
            await self._app(scope, receive, _Answer(scope, receive, send).message)


class _Answer:
    """One answer on its way out. An error for a browser is kept back until it is a page."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._status = 0
        """The status of an error that becomes a page; 0: the answer goes out as it is."""
        self._body = b""

    async def message(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.update(RULES)
            headers.setdefault("cache-control", "no-store")
            is_json = headers.get("content-type", "").startswith("application/json")
            wants = wants_page(Headers(scope=self._scope), self._scope["query_string"].decode("latin-1"))
            if message["status"] >= 400 and is_json and wants:
                self._status = message["status"]
                return
        elif self._status and message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if not message.get("more_body"):
                await self._as_page()
            return
        await self._send(message)

    async def _as_page(self) -> None:
        error = decode_json(self._body, _ErrorBody)
        if self._status == 401:
            knows = bool(session_in(self._scope)) or self._scope["method"] == "POST"
            shown = sign_in_page(self._scope["path"], error.message if knows else "")
        else:
            shown = error_page(error.error, error.message, error.hint)
        headers = {**RULES, "cache-control": "no-store"}
        await HTMLResponse(shown, self._status, headers)(self._scope, self._receive, self._send)


def sign_in_page(path: str, problem: str) -> str:
    """Returns the page that asks for a token, and leads back to `path`."""
    back = path if is_console(path) and not path.startswith("/ui/sign-") else HOME
    said = f'<p class="notice bad" role="alert">{text(problem)}</p>' if problem else ""
    return document(
        "Sign in",
        Markup(
            f'<main class="narrow"><h1>torrentdist</h1>{said}<form method="post" action="/ui/sign-in" class="sign-in">'
            '<label for="token">Your token</label>'
            '<input id="token" name="token" type="password" required autocomplete="current-password" autofocus>'
            f"{hidden('back', back)}<button>Sign in</button></form>"
            "<p>Ask an operator for a token: <code>torrentdist token create NAME --role reader</code>. "
            "The console keeps a session of twelve hours, not the token.</p></main>"
        ),
    )


def error_page(code: str, message: str, hint: str) -> str:
    home = link(HOME, "Overview")
    return document(
        code,
        Markup(
            f'<main class="narrow"><h1>It did not work</h1><p class="notice bad" role="alert">{text(message)}</p>'
            f"<p>{text(hint)}</p><p><code>error[{text(code)}]</code></p><p>{home}</p></main>"
        ),
    )


_FILES = Path(__file__).parent


class SessionPages(Routes):
    """`secure`: whether this master serves HTTPS."""

    def __init__(self, sessions: Sessions, secure: bool) -> None:
        self._sessions = sessions
        self._secure = secure
        self._assets = {
            "console.css": (style() + _FILES.joinpath("console.css").read_text(encoding="utf-8"), "text/css"),
            "console.js": (_FILES.joinpath("console.js").read_text(encoding="utf-8"), "text/javascript"),
        }

    @operation("GET", "/ui/assets/{name}", None, Role.ANYONE)
    async def asset(self, request: Request) -> Response:
        """What the pages load."""
        name = request.path_params["name"]
        if name not in self._assets:
            raise TorrentdistError("not_found", what=f"the file {name[:100]!r}")
        content, kind = self._assets[name]
        return Response(content, media_type=kind, headers={"cache-control": "max-age=60"})

    @operation("POST", "/ui/sign-in", None, Role.ANYONE, max_body=MOST_FORM_BYTES)
    async def sign_in(self, request: Request) -> Response:
        """A session of the console, for a token."""
        fields = await form_of(request)
        token = fields.get("token", "").strip()
        if not token:
            raise TorrentdistError("invalid_request", detail="the form has no token")
        session = self._sessions.sign_in(token)
        back = fields.get("back", "")
        target = back if is_console(back) and "\\" not in back else "/ui/"
        return self._answer(target, session)

    @operation("POST", "/ui/sign-out", None, Role.READER, max_body=MOST_FORM_BYTES)
    async def sign_out(self, request: Request) -> Response:
        """The end of a session in this browser."""
        self._sessions.expect_own_form(request, await form_of(request))
        return self._answer("/ui/", "")

    def _answer(self, target: str, session: str) -> Response:
        return RedirectResponse(target, 303, {"set-cookie": session_cookie(session, self._secure)})
