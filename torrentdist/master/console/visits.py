"""The visitors of the console: their sessions, what their forms must carry, and what the frame of
each page says.

Always: a form changes nothing unless its page was made for the same sender. A program gets JSON,
and a browser gets a page, unless `format=json` asks for the JSON.
"""

import hmac
import time
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import body_of
from torrentdist.host.http.web import json_response
from torrentdist.master.console.console_markup import Visit
from torrentdist.master.console.forms.actions import Action, action_of
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.reads.saved_records import Records
from torrentdist.model.access.token_messages import TokenRecord
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId
from torrentdist.security.authorization import Principal, Proof
from torrentdist.security.console_session import (
    COOKIE,
    LIFETIME_SECS,
    SHARED,
    form_key,
    new_session,
    principal_of_session,
)
from torrentdist.security.tokens import principal_of_token

MOST_FORM_BYTES = 64 * 1024
MOST_FIELDS = 50


class Sessions:
    """Gives sessions for tokens. `shared`: the token that the daemons share; None: there is
    none."""

    def __init__(self, key: bytes, records: Records, shared: str | None) -> None:
        self._key = key
        self._records = records
        self._shared = shared

    def sign_in(self, token: str) -> str:
        """Returns a session for this token, or raises `unauthorized`."""
        now = self._now()
        if self._shared is not None and hmac.compare_digest(token.encode(), self._shared.encode()):
            return new_session(self._key, SHARED, "", now)
        principal = principal_of_token(token, self._record, now)
        record = None if principal is None else self._record(principal.name)
        if principal is None or record is None:
            raise TorrentdistError("unauthorized")
        return new_session(self._key, principal.name, record.hash, now)

    def principal(self, scope: Scope) -> Principal | None:
        """Returns the sender of a request for a page that shows a session; None: it shows none."""
        session = session_in(scope)
        if not session or not is_console(scope["path"]):
            return None
        return principal_of_session(self._key, session, self._record, self._now())

    def form_key(self, request: Request) -> str:
        sender = principal_of(request)
        is_session = sender.how is Proof.SESSION
        return form_key(self._key, session_in(request.scope) if is_session else f"{sender.how}\0{sender.name}")

    def expect_own_form(self, request: Request, fields: dict[str, str]) -> None:
        """Raises `foreign_site` for a form that was not made for its sender. A program that shows
        its token with the request needs none: no page of another site can do that."""
        if "authorization" in request.headers:
            return
        if not hmac.compare_digest(fields.get("form_key", "").encode(), self.form_key(request).encode()):
            raise TorrentdistError("foreign_site", detail="the form was not made for you; open its page again")

    def _record(self, name: str) -> TokenRecord | None:
        entry = self._records.snapshot().tokens.get(name)
        return None if entry is None else entry.record

    def _now(self) -> float:
        return self._records.server_now() or time.time()


class Visits:
    """Makes what the frame of a page says."""

    def __init__(self, me: MasterId, records: Records, leadership: Leadership, sessions: Sessions) -> None:
        self._me = me
        self._records = records
        self._leadership = leadership
        self.sessions = sessions

    def of(self, request: Request) -> Visit:
        leader = self._leadership.leader_id()
        masters = self._records.snapshot().masters
        known = None if leader is None else masters.get(leader)
        return Visit(
            master=self._me,
            path=request.url.path,
            query=request.url.query,
            sender=principal_of(request),
            form_key=self.sessions.form_key(request),
            leader=leader or "",
            leader_url="" if known is None else known.url,
            others=[(str(id_), m.url) for id_, m in sorted(masters.items()) if id_ != self._me],
            stale_secs=self._records.stale_secs(),
            said=self._said(request),
        )

    def said_query(self, request: Request, action: Action, subject: str) -> str:
        """Returns the query that lets the next page say what a change did, to its sender alone: no
        link of somebody else can say it."""
        proof = self._proof(request, action.kind, action.name, subject)
        return urlencode({"did": action.name, "to": subject, "proof": proof})

    def _said(self, request: Request) -> str:
        query = request.query_params
        action = action_of(request.url.path.split("/")[2], query.get("did", ""))
        if action is None:
            return ""
        subject = query.get("to", "")
        proof = self._proof(request, action.kind, action.name, subject)
        is_own = hmac.compare_digest(query.get("proof", "").encode(), proof.encode())
        return f"{subject}: {action.done}" if is_own else ""

    def _proof(self, request: Request, *parts: str) -> str:
        key = self.sessions.form_key(request).encode()
        return hmac.new(key, "\0".join(parts).encode(), "sha256").hexdigest()[:32]


def is_console(path: str) -> bool:
    return path.startswith("/ui/")


def session_in(scope: Scope) -> str:
    """Returns the session that a request shows; empty if it shows none."""
    cookies: SimpleCookie = SimpleCookie()
    try:
        cookies.load(Headers(scope=scope).get("cookie", "")[:8192])
    except CookieError:
        return ""
    return cookies[COOKIE].value if COOKIE in cookies else ""


def session_cookie(session: str, secure: bool) -> str:
    """Returns the header that gives a session to a browser; an empty session takes it away."""
    ends = f"; Max-Age={int(LIFETIME_SECS) if session else 0}"
    return f"{COOKIE}={session}; Path=/ui/; HttpOnly; SameSite=Strict{ends}{'; Secure' if secure else ''}"


def wants_page(headers: Headers, query: str) -> bool:
    """Whether the sender is a browser that shows pages."""
    return "text/html" in headers.get("accept", "") and "format=json" not in query.split("&")


def answer(request: Request, page: Any, twin: Any) -> Response:
    """Returns the page to a browser, and its JSON twin to a program. `page`: makes the HTML."""
    if wants_page(request.headers, request.url.query):
        return HTMLResponse(page())
    return json_response(twin)


async def form_of(request: Request) -> dict[str, str]:
    """Returns the fields of a form; of several with one name, the last."""
    try:
        fields = parse_qsl((await body_of(request)).decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as exc:
        raise TorrentdistError("invalid_request", detail=f"the form: {exc}") from None
    return dict(fields)
