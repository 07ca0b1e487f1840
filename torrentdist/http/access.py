"""The credentials that a request carries, and the certificates that it trusts, for each server.

Always: the caller decides for each server which credentials to send.
Never: send a token in the clear to another machine, unless the configuration allows it, or to a
server that only an answer named and that cannot prove its identity by the cluster's CA.
"""

import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from torrentdist.http.http_values import NotTrusted, Origin
from torrentdist.http.token_recipients import TokenRecipients, origins_of
from torrentdist.model.loopback import is_loopback


class Trust(msgspec.Struct, frozen=True):
    """How a server has to prove itself."""

    context: ssl.SSLContext
    """The CAs to believe, and the certificate of our own to show, if there is one."""
    complaint: Callable[[Mapping[str, Any]], str] = lambda certificate: ""
    """Says why a verified certificate is not the right one; empty if it is."""


class Access(msgspec.Struct, frozen=True):
    """How we present ourselves to one server, and how it has to present itself to us."""

    token: str = ""
    """The bearer token that the server gets. Empty: it gets none."""
    trust: Trust | None = None
    """What https trusts. None: the CAs that the system trusts."""
    recipients: TokenRecipients | None = None
    """Decides whether the server gets the token. None: it does."""

    def headers(self) -> dict[str, str]:
        """Returns the headers that carry the credentials."""
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


AccessRule = Callable[[Origin], Access]
"""Returns the access for a server. Raises NotTrusted for one that must not be asked."""

ANONYMOUS = Access()


def anonymously(origin: Origin) -> Access:
    """Sends no credentials to any server, and trusts what the system trusts."""
    return ANONYMOUS


def system_trust() -> Trust | None:
    """Trusts what the system trusts."""
    return None


def with_token(
    token: str | None,
    trust: Callable[[], Trust | None] = system_trust,
    *,
    configured: Iterable[str] = (),
    in_the_clear: bool = False,
) -> AccessRule:
    """Sends the token to servers that may have it. None or empty: no server gets credentials.

    `trust` is asked for each connection, since certificates change. `configured`: the URLs that
    the user named, which may prove themselves by a CA of the system. `in_the_clear`: other
    machines get the token over plain HTTP too.
    """
    named = frozenset(origins_of(configured))

    def access(origin: Origin) -> Access:
        believed = trust()
        plain = origin.scheme == "http"
        if token and plain and not in_the_clear and not is_loopback(origin.host):
            raise NotTrusted("it gets no token, which would travel in the clear over http://")
        if token and not plain and believed is None and origin not in named:
            raise NotTrusted("it gets no token: only an answer named it, and no client.ca_file tells what to trust")
        return Access(token or "", believed)

    return access


def to_known_masters(rule: AccessRule, token: str | None, told: Callable[[], Iterable[str]]) -> AccessRule:
    """Narrows a rule: over plain HTTP the token goes to the servers that `told` returns, and to
    others only after they have proven that they know it.
    """
    if not token:
        return rule
    recipients = TokenRecipients(token, told)
    return lambda origin: msgspec.structs.replace(rule(origin), recipients=recipients)
