"""The gateway's door for pods: files and archives of bundles, objects of S3 and images, for who has
a capability: in the URL, as the access key of S3, or as the password of a registry.

Always: without a capability, every path gets the same refusal. Nobody is trusted for an address, a
token or a certificate. An answer that takes long is cut off soon after its capability was revoked.
Never: put a capability into a log, an event or an error.
"""

import re
import time
from collections.abc import Callable, Iterable
from typing import Final

from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torrentdist.host.http.authentication import RECHECK_SECS, refuse
from torrentdist.host.http.operation import Handler, Operation, Router, api_app, operations_of
from torrentdist.host.http.web import PRINCIPAL, CutShort
from torrentdist.host.telemetry.audit_log import Audit
from torrentdist.model.errors import TorrentdistError, required
from torrentdist.security.authorization import STRANGER
from torrentdist.security.capabilities import PARAMETER, Capability, capability_principal, covers
from torrentdist.supervisor.gateway.bundle_server import on_bundle_error
from torrentdist.supervisor.gateway.gateway import error_answer
from torrentdist.supervisor.images.pushers import token_in
from torrentdist.supervisor.images.registry_errors import is_registry
from torrentdist.supervisor.objects.bucket_names import bundle_of
from torrentdist.supervisor.objects.s3_errors import is_s3

PATHS: Final = ("/bundles/{id}/files/{path:any_path}", "/bundles/{id}/{name}")
"""The operations of the gateway on bundles that pods may use. Of S3 and the registry they may use
those that read."""
_ACCESS_KEY: Final = re.compile(r"AWS4-HMAC-SHA256 .*?Credential=([^/,\s]+)/|AWS ([^:\s]+):", re.ASCII)
_CAPABILITY: Final = "torrentdist.capability"
"""The key of a request's capability in its scope."""
Verify = Callable[[str], Capability]
"""Returns what a text states, or raises the error that refuses it."""


def pod_app(routers: Iterable[Router], verify: Verify, cut: Callable[[tuple[str, int]], None], audit: Audit) -> ASGIApp:
    """Builds the application that pods reach."""
    operations = [operation for operation in operations_of(*routers) if _is_for_pods(operation)]
    app = api_app(operations, around=_covered, on_error=_on_error, audit=audit)
    return CutShort(PodDoor(app, verify, audit), cut)


def _is_for_pods(operation: Operation) -> bool:
    is_read = operation.method == "GET" and (is_s3(operation.path) or is_registry(operation.path))
    return operation.path in PATHS or is_read


async def _on_error(request: Request, exc: Exception) -> Response:
    path = request.url.path
    if isinstance(exc, TorrentdistError) and (is_s3(path) or is_registry(path)):
        return error_answer(path, exc)
    return await on_bundle_error(request, exc)


def _covered(operation: Operation) -> Handler:
    """Returns the operation's handler, for which there is only what the capability covers."""

    async def handle(request: Request) -> Response:
        capability: Capability = request.scope[_CAPABILITY]
        bundle, path = _asked(request)
        if bundle is not None and not covers(capability, bundle, path):
            raise TorrentdistError("bundle_not_found", id=bundle, note="")
        if is_registry(operation.path) and capability.path:
            raise TorrentdistError("forbidden", detail="a capability for one path opens no image")
        return await operation.handler(request)

    return handle


def _asked(request: Request) -> tuple[str | None, str | None]:
    """Returns the bundle that a request names, and the path in it. The registry looks itself which
    bundles its caller may read."""
    named = request.path_params
    if "bucket" in named:
        return bundle_of(named["bucket"]), named.get("key") or _listed_path(request.query_params.get("prefix", ""))
    return named.get("id"), named.get("path")


def _listed_path(prefix: str) -> str | None:
    """Returns a path that is covered just where all keys with this prefix are: `dir` is also the
    beginning of `dir-2/`."""
    if not prefix:
        return None
    return prefix.removesuffix("/") if prefix.endswith("/") else f"{prefix}*"


class PodDoor:
    """Sets the principal of each request by its capability, and refuses requests without one."""

    def __init__(self, app: ASGIApp, verify: Verify, audit: Audit) -> None:
        self._app = app
        self._verify = verify
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                scope[_CAPABILITY] = capability = self._capability(scope)
            except TorrentdistError as error:
                await refuse(scope, receive, send, error, self._audit, STRANGER, error_answer)
                return
            scope[PRINCIPAL] = capability_principal(capability)
            send = self._until_revoked(scope, send)
        await self._app(scope, receive, send)

    def _capability(self, scope: Scope) -> Capability:
        query = QueryParams(scope["query_string"])
        given = query.getlist(PARAMETER)
        if not given and (key := _key_in(scope, query)):
            given = [key]
        return self._verify(required(given[0] if len(given) == 1 else None, "url_invalid"))

    def _until_revoked(self, scope: Scope, send: Send) -> Send:
        """Returns `send`, which raises an error within seconds of a revocation."""
        next_at = time.monotonic() + RECHECK_SECS

        async def checked(message: Message) -> None:
            nonlocal next_at
            if time.monotonic() >= next_at:
                next_at = time.monotonic() + RECHECK_SECS
                try:
                    self._capability(scope)
                except TorrentdistError as error:
                    if error.code != "url_expired":  # it was good when the answer began
                        raise
            await send(message)

        return checked


def _key_in(scope: Scope, query: QueryParams) -> str:
    """Returns the access key of S3, or the password for a registry; empty if there is none. A
    signature proves nothing more than the key, which is signed itself."""
    given = Headers(scope=scope).get("authorization", "")
    if is_registry(scope["path"]):
        return token_in(given)
    if not is_s3(scope["path"]):
        return ""
    found = _ACCESS_KEY.match(given)
    if found is not None:
        return found[1] or found[2]
    return query.get("X-Amz-Credential", "").partition("/")[0] or query.get("AWSAccessKeyId", "")
