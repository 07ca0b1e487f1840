"""The API for other hosts, on api.listen: the output of this host's workers, metafiles of the
bundles that it has or fetches, and its health and metrics.

Always: if the cluster has a token or certificates, only `/livez` is answered without one.
Never: change anything.
"""

from collections.abc import Awaitable, Callable, Sequence

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

from torrentdist.host.http.authentication import Authentication, principal_of
from torrentdist.host.http.declared_routes import DeclaredRoutes, operation
from torrentdist.host.http.operation import Handler, Operation, Router, api_app, operations_of
from torrentdist.host.http.web import number_parameter
from torrentdist.host.process.port_guard import PortGuard
from torrentdist.host.telemetry.audit_log import Audit
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.model.wire.headers import UPDATE_TYPE
from torrentdist.security.authorization import Principal, Role
from torrentdist.security.certificate_identity import CertificateRole
from torrentdist.security.passes import PARAMETER, PASS_HOLDER
from torrentdist.security.tls_contexts import PeerCertificate

Awaited = Callable[[Digest, float], Awaitable[bytes | None]]
"""Waits for the metafile or the recipe of a digest, or the update of a hash, at most the given
number of seconds; None: it did not come."""
LONGEST_WAIT_SECS = 60.0


IsAdmitted = Callable[[str, str], bool]
"""Tells whether a pass lets its sender read a path."""


class PeerApi(DeclaredRoutes):
    """The operations about bundles for other hosts."""

    def __init__(self, raw_metafile: Awaited, raw_recipe: Awaited, raw_update: Awaited) -> None:
        self._raw_metafile = raw_metafile
        self._raw_recipe = raw_recipe
        self._raw_update = raw_update

    @operation("GET", "/v1/metafiles/{digest}", None, Role.HOST)
    async def metafile(self, request: Request) -> Response:
        """The metafile of a digest that this host has, or waits for."""
        return Response(await self._awaited(request, self._raw_metafile), media_type="application/x-bittorrent")

    @operation("GET", "/v1/recipes/{digest}", None, Role.HOST)
    async def recipe(self, request: Request) -> Response:
        """The recipe of a digest that this host has, or waits for."""
        return Response(await self._awaited(request, self._raw_recipe), media_type="application/octet-stream")

    @operation("GET", "/v1/updates/{digest}", None, Role.HOST)
    async def update(self, request: Request) -> Response:
        """The update with this hash that this host received, or waits for."""
        return Response(await self._awaited(request, self._raw_update), media_type=UPDATE_TYPE)

    async def _awaited(self, request: Request, read: Awaited) -> bytes:
        digest = ids.digest(request.path_params["digest"])
        raw = await read(digest, number_parameter(request, "wait", 0.0, low=0.0, high=LONGEST_WAIT_SECS))
        if raw is None:
            raise TorrentdistError("not_found", what=f"{request.url.path} on this host")
        return raw


def _with_pass(operation: Operation, admitted: IsAdmitted) -> Handler:
    """Returns the operation's handler, for which a supervisor needs a master's pass. Masters decide
    what a supervisor may read, so its certificate is not enough here."""

    async def handle(request: Request) -> Response:
        certificate = principal_of(request).certificate
        is_supervisor = certificate is not None and certificate.role is CertificateRole.SUPERVISOR
        given = request.query_params.get(PARAMETER, "")
        if is_supervisor and operation.path.startswith("/v1/") and not admitted(given, request.url.path):
            raise TorrentdistError("forbidden", detail="a supervisor gets this from here by a master's pass")
        return await operation.handler(request)

    return handle


def outside_app(
    routers: Sequence[Router],
    guard: PortGuard,
    admitted: IsAdmitted,
    is_revoked: Callable[[PeerCertificate], bool],
    audit: Audit,
) -> ASGIApp:
    """Builds the application that other hosts reach.

    `is_revoked` tells whether a certificate was revoked.
    """

    def by_pass(scope: Scope) -> Principal | None:
        given = QueryParams(scope["query_string"]).get(PARAMETER, "")
        return PASS_HOLDER if given and scope["method"] == "GET" and admitted(given, scope["path"]) else None

    app = api_app(operations_of(*routers), around=lambda operation: _with_pass(operation, admitted), audit=audit)
    rules = guard.rules(is_revoked)
    return Authentication(app, guard.token, other_proof=by_pass, certificates=rules, audit=audit)
