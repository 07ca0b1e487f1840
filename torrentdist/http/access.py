"""The credentials that a request carries, and the certificates that it trusts, for each server.

Always: the caller decides by server what to send it. Never: a server that the caller did not mean
gets a token.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable

import msgspec

from torrentdist.http.request_head import Origin


class Access(msgspec.Struct, frozen=True):
    """How we present ourselves to one server, and how it has to present itself to us."""

    token: str = ""
    """The bearer token that the server gets. Empty: it gets none."""
    trust: ssl.SSLContext | None = None
    """The certificates that https trusts. None: those that the system trusts."""

    def headers(self) -> dict[str, str]:
        """Returns the headers that carry the credentials."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


AccessRule = Callable[[Origin], Access]
"""Returns the access for a server."""

ANONYMOUS = Access()


def anonymously(origin: Origin) -> Access:
    """Sends no credentials to any server, and trusts what the system trusts."""
    return ANONYMOUS


def with_token(token: str | None) -> AccessRule:
    """Sends the token to every server that is asked. None or empty: no server gets credentials."""
    access = Access(token or "")
    return lambda origin: access
