"""Refuses what a web page of another site has a browser send to a daemon.

A browser on the same machine or network reaches daemons that its pages could not, and some of them
trust whoever reaches them.
Always: a Host is an address, a name of this daemon, or a name without a dot, which no page of the
internet has; a page can have its own name lead here. A POST carries something that no page of
another site can send without being asked back, or names this daemon as its origin, as forms of the
console do.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from torrentdist.host.http.authentication import ErrorAnswer, as_json, refuse
from torrentdist.host.telemetry.audit_log import Audit
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.headers import CLIENT, REQUEST_ID
from torrentdist.security.authorization import STRANGER

HEALTH_PATHS: Final = frozenset({"/livez", "/readyz", "/leaderz", "/metrics"})
"""What a load balancer and a monitor ask for, under names of their own. None changes anything."""
_SIMPLE_TYPES: Final = frozenset({"text/plain", "application/x-www-form-urlencoded", "multipart/form-data"})
"""What a page of any site may send without asking back."""
_HARMLESS: Final = re.compile(r"/v2/.+/blobs/uploads/?|/s3(/.*)?", re.ASCII | re.DOTALL)
"""Clients of registries begin an upload with a bare POST. What it begins is used by a PUT, which no
page of another site can send. Every POST of S3 is refused in S3's own words."""


def names_of(addresses: Iterable[str]) -> frozenset[str]:
    """Returns the names by which this daemon may be called: those given, and this machine's."""
    return frozenset(name.lower() for name in (socket.gethostname(), *addresses))


def foreign_sign(method: str, headers: Mapping[str, str], names: frozenset[str], path: str = "") -> str:
    """Returns what shows that a request comes from another site; empty if nothing does."""
    host = headers.get("host", "")
    if host and not _is_own(_name_in(host), names):
        return f"this daemon is not called {_name_in(host)[:100]!r}"
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != host.lower():
        return f"a page of {origin[:100]!r} has sent it"
    site, mode = headers.get("sec-fetch-site", ""), headers.get("sec-fetch-mode", "")
    is_visit = method in ("GET", "HEAD") and mode == "navigate"
    if site in ("cross-site", "same-site") and not is_visit:
        return "a page of another site has sent it"
    if method == "POST" and _HARMLESS.fullmatch(path) is None and not _is_deliberate(headers):
        return f"it has neither Content-Type: application/json nor {CLIENT}: 1, so any page could have sent it"
    return ""


def _name_in(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].rstrip(".").lower()


def _is_own(name: str, names: frozenset[str]) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." not in name or name in names
    return True


def _is_deliberate(headers: Mapping[str, str]) -> bool:
    if CLIENT in headers or REQUEST_ID in headers or headers.get("origin"):
        return True  # the origin is this daemon, else the request would have been refused
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind:
        return kind not in _SIMPLE_TYPES
    return headers.get("authorization", "").lower().startswith("bearer ")


class OwnSite:
    """Lets requests pass that no page of another site has made. `names`: see `names_of`. `told`
    makes the answer of a refusal."""

    def __init__(self, app: ASGIApp, names: frozenset[str], audit: Audit, told: ErrorAnswer = as_json) -> None:
        self._app = app
        self._told = told
        self._names = names
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in HEALTH_PATHS:
            sign = foreign_sign(scope["method"], Headers(scope=scope), self._names, scope["path"])
            if sign:
                error = TorrentdistError("foreign_site", detail=sign)
                await refuse(scope, receive, send, error, self._audit, STRANGER, self._told)
                return
        await self._app(scope, receive, send)
