"""Names the sender of each request before a handler sees it.

Always: a request that passes has a principal in its scope; a missing or wrong token is
`unauthorized`. An answer that takes long is cut off soon after its sender was revoked.
Never: decide what a principal may do.
"""

import hmac
import time
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torrentdist.host.http.web import PEER, PRINCIPAL, json_response
from torrentdist.host.telemetry.audit_log import Audit
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import AccessAudited
from torrentdist.security.authorization import (
    LOCAL,
    STRANGER,
    TOKEN_HOLDER,
    Principal,
    certificate_holder,
    where_hosts_have_certificates,
)
from torrentdist.security.tls_contexts import PeerCertificate

RECHECK_SECS: Final = 2.0
"""How often the sender of a long answer is looked at again."""
REVOKED: Final = ("token_revoked", "host_revoked")
MOST_PATH: Final = 256
"""Characters of a refused request's path that the audit keeps."""


def principal_of(request: Request) -> Principal:
    """Returns the sender of the request."""
    principal = request.scope[PRINCIPAL]
    assert isinstance(principal, Principal)
    return principal


def authenticate(authorization: str, token: str | None) -> Principal | None:
    """Returns the principal of an Authorization header; None if it does not prove the token."""
    if token is None:
        return LOCAL
    return TOKEN_HOLDER if hmac.compare_digest(bearer_of(authorization).encode(), token.encode()) else None


def bearer_of(authorization: str) -> str:
    """Returns the token of an Authorization header; empty if there is none."""
    scheme, _, given = authorization.partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def holder_of(scope: Scope) -> Principal | None:
    """Returns the principal of the certificate that the other end of the connection has proven."""
    peer = scope.get("state", {}).get(PEER)
    return certificate_holder(peer.identity) if isinstance(peer, PeerCertificate) else None


ErrorAnswer = Callable[[str, TorrentdistError], Response]
"""Returns the answer that tells an error to who asked for this path."""


def as_json(_: str, error: TorrentdistError) -> Response:
    """Tells an error as our own API does."""
    return json_response(error.to_wire(), status=error.http_status)


async def refuse(
    scope: Scope,
    receive: Receive,
    send: Send,
    error: TorrentdistError,
    audit: Audit | None,
    sender: Principal,
    told: ErrorAnswer = as_json,
) -> None:
    """Answers with the error, and tells the audit. `sender`: as far as it is known."""
    if audit is not None:
        audit.refused(_refusal(scope, error, sender))
    await told(scope["path"], error)(scope, receive, send)


def _refusal(scope: Scope, error: TorrentdistError, sender: Principal) -> AccessAudited:
    client = scope.get("client")
    return AccessAudited(
        who=str(error.fields.get("name", "")) or sender.name,
        sender_role=sender.role,
        how=sender.how,
        operation=f"{scope['method']} {scope['path'][:MOST_PATH]}",
        target="",
        bundle="",
        source=client[0] if client else "",
        result=error.code,
    )


OtherProof = Callable[[Scope], Principal | None]
"""Returns the principal of a request that proves itself in a further way. Raises the error that
tells why a right proof does not count any more."""


def no_other_proof(_: Scope) -> Principal | None:
    return None


def _is_open(path: str, opens: Iterable[str]) -> bool:
    return any(path == open_ or (open_.endswith("/") and path.startswith(open_)) for open_ in opens)


class CertificateRules(msgspec.Struct, frozen=True):
    """What certificates count on a port with TLS."""

    is_revoked: Callable[[PeerCertificate], bool]
    """A connection with such a certificate gets nothing."""
    are_for_all_hosts: bool
    """Hosts prove themselves by certificate alone, and no sender is trusted without a proof."""
    cluster: Callable[[], str]
    """Returns the name of the cluster that our own certificate is for. One for another cluster gets
    nothing: the same CA may serve several clusters."""

    def check(self, peer: PeerCertificate) -> None:
        """Raises the reason why a verified certificate counts for nothing here."""
        if peer.identity.cluster != self.cluster():
            raise TorrentdistError("other_cluster", id=peer.identity.id, cluster=peer.identity.cluster)
        if self.is_revoked(peer):
            raise TorrentdistError("host_revoked", id=peer.identity.id)


class Authentication:
    """Sets the principal of each request, and refuses requests that cannot prove one.

    `token` None: every sender is a local program. `open_prefixes`: paths that need no proof; one
    that ends with a slash stands for all that begin so.
    `certificates` is given where the port has TLS. `other_proof` is asked where the token is not
    the proof.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        open_prefixes: tuple[str, ...] = (),
        other_proof: OtherProof = no_other_proof,
        *,
        certificates: CertificateRules | None = None,
        audit: Audit | None = None,
    ) -> None:
        self._app = app
        self._certificates = certificates
        self._token = token
        self._open = open_prefixes
        self._other_proof = other_proof
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                scope[PRINCIPAL] = self._principal(scope)
            except TorrentdistError as error:
                await refuse(scope, receive, send, error, self._audit, STRANGER)
                return
            send = self._until_revoked(scope, send)
        await self._app(scope, receive, send)

    def _until_revoked(self, scope: Scope, send: Send) -> Send:
        """Returns `send`, which raises an error within seconds of a revocation of the sender."""
        next_at = time.monotonic() + RECHECK_SECS

        async def checked(message: Message) -> None:
            nonlocal next_at
            if time.monotonic() >= next_at:
                next_at = time.monotonic() + RECHECK_SECS
                try:
                    self._principal(scope)
                except TorrentdistError as error:  # a proof that has only grown old was good when it began
                    if error.code in REVOKED:
                        raise
            await send(message)

        return checked

    def _principal(self, scope: Scope) -> Principal:
        shown = scope.get("state", {}).get(PEER)
        rules = self._certificates
        if isinstance(shown, PeerCertificate) and rules is not None:
            rules.check(shown)
        is_open = _is_open(scope["path"], self._open)
        given = Headers(scope=scope).get("authorization", "")
        peer = None if given else holder_of(scope)
        principal = peer or authenticate(given, self._token)
        if rules is not None and rules.are_for_all_hosts:
            principal = where_hosts_have_certificates(principal)
        if principal is None:
            try:
                principal = self._other_proof(scope)
            except TorrentdistError:
                if not is_open:
                    raise
        if principal is None and not is_open:
            raise TorrentdistError("unauthorized")
        return principal or STRANGER
