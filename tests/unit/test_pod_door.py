"""The gateway's door for pods: what a capability opens, wherever a request shows it."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Message

from torrentdist.host.http.declared_routes import DeclaredRoutes, operation
from torrentdist.host.http.web import PRINCIPAL
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import AccessAudited
from torrentdist.security.authorization import Role
from torrentdist.security.capabilities import Capability
from torrentdist.supervisor.gateway import pod_door
from torrentdist.supervisor.gateway.pod_door import Verify, pod_app
from torrentdist.supervisor.objects.object_api import ObjectApi

pytestmark = pytest.mark.anyio
GOOD = {
    "all": Capability(cluster="c", name="u1", bundles="etl-*", path="", until=9),
    "path": Capability(cluster="c", name="u2", bundles="etl-*", path="dir", until=9),
}
BASIC = f"Basic {b64encode(b'any:all').decode()}"


class GatewayRoutes(DeclaredRoutes):
    """Some operations of a gateway, which say who asked."""

    async def _said(self, request: Request) -> Response:
        return JSONResponse({"who": request.scope[PRINCIPAL].name, **request.path_params})

    @operation("GET", "/bundles/{id}/files/{path:any_path}", None, Role.JOB)
    async def file(self, request: Request) -> Response:
        """A file."""
        return await self._said(request)

    @operation("GET", "/bundles/{id}/{name}", None, Role.JOB)
    async def archive(self, request: Request) -> Response:
        """An answer that takes long."""

        async def parts() -> AsyncIterator[bytes]:
            yield b"first "
            request.app.state.later()
            yield b"second"

        return StreamingResponse(parts())

    @operation("GET", "/bundles/{id}/other/door", None, Role.JOB)
    async def other(self, request: Request) -> Response:
        """What no pod may reach."""
        return await self._said(request)

    @operation("GET", "/s3/{bucket}", None, Role.JOB)
    async def bucket(self, request: Request) -> Response:
        """A list of objects."""
        return await self._said(request)

    @operation("GET", "/s3/{bucket}/{key:any_path}", None, Role.JOB)
    async def key(self, request: Request) -> Response:
        """An object."""
        return await self._said(request)

    @operation("PUT", "/s3/{bucket}/{key:any_path}", None, Role.JOB)
    async def put(self, request: Request) -> Response:
        """What would change a bundle."""
        return await self._said(request)

    @operation("GET", "/v2/{name}/tags/list", None, Role.JOB)
    async def tags(self, request: Request) -> Response:
        """The tags of an image."""
        return await self._said(request)


class HeardAudit:
    def __init__(self) -> None:
        self.heard: list[AccessAudited] = []

    def refused(self, fact: AccessAudited) -> None:
        self.heard.append(fact)

    changed = refused


def verify(text: str) -> Capability:
    if text not in GOOD:
        raise TorrentdistError("url_expired" if text == "old" else "url_invalid", name="u")
    return GOOD[text]


async def asked(
    path: str,
    authorization: str = "",
    *,
    method: str = "GET",
    audit: HeardAudit | None = None,
    routes: DeclaredRoutes | None = None,
) -> httpx.Response:
    heard: Any = audit or HeardAudit()
    headers = {"authorization": authorization} if authorization else {}
    app = pod_app([routes or GatewayRoutes()], verify, lambda _: None, heard)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://h") as pod:
        return await pod.request(method, path, headers=headers)


@pytest.mark.parametrize(
    ("path", "authorization"),
    [
        ("/bundles/etl-1/files/a/b?capability=all", ""), ("/bundles/etl-1/files/dir/b?capability=path", ""),
        ("/s3/etl-1/dir/x?capability=path", ""), ("/s3/etl-1?prefix=dir/&capability=path", ""),
        ("/s3/etl-1/a", "AWS4-HMAC-SHA256 Credential=all/2026/r/s3/aws4_request, Signature=x"),
        ("/s3/etl-1/a", "AWS all:signature"), ("/s3/etl-1/a?X-Amz-Credential=all/2026", ""),
        ("/s3/etl-1/a?AWSAccessKeyId=all", ""), ("/v2/x/tags/list", BASIC), ("/v2/x/tags/list", "Bearer all"),
        ("/v2/x/tags/list?capability=all", ""),
    ],
)  # fmt: skip
async def test_a_capability_opens_what_it_covers(path: str, authorization: str) -> None:
    """A pod could not read its bundle by the client that it has."""
    found = await asked(path, authorization)

    assert (200, True) == (found.status_code, found.json()["who"].endswith(("u1", "u2")))


@pytest.mark.parametrize(
    ("path", "authorization", "status"),
    [
        ("/bundles/etl-1/files/a", "", 401), ("/bundles/etl-1/files/a?capability=wrong", "", 401),
        ("/bundles/etl-1/files/a?capability=all&capability=all", "", 401),
        ("/bundles/etl-1/files/a", BASIC, 401), ("/s3/etl-1/a", "Bearer all", 403), ("/s3/etl-1/a", "AWS x", 403),
        ("/v2/x/tags/list", "AWS all:x", 401), ("/v2/x/tags/list", "Basic !", 401),
        ("/bundles/other/files/a?capability=all", "", 404), ("/bundles/etl-1/files/a?capability=path", "", 404),
        ("/s3/other/a?capability=all", "", 404), ("/s3/etl-1?capability=path", "", 404),
        ("/s3/etl-1?prefix=dir&capability=path", "", 404), ("/s3/etl-1/di?capability=path", "", 404),
        ("/v2/x/tags/list?capability=path", "", 403), ("/bundles/etl-1/other/door?capability=all", "", 404),
    ],
)  # fmt: skip
async def test_nothing_else_is_open(path: str, authorization: str, status: int) -> None:
    """A pod of one tenant would read the bundles of another, or what only this host may."""
    found = await asked(path, authorization)

    assert status == found.status_code
    assert "who" not in found.text


class AskedBundles:
    """Bundles without any file, which remember the paths that were looked for."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def content(self, bundle: str) -> object:
        return bundle

    async def tree(self, _: object) -> AskedBundles:
        return self

    def find(self, path: str) -> None:
        self.paths.append(path)


@pytest.mark.parametrize("path", ["/s3/etl-1%2Fdir/secret", "/s3%2Fetl-1/dir/secret", "/%73%33/etl-1/dir%2Fsecret"])
async def test_the_object_that_is_read_is_the_one_that_was_checked(path: str) -> None:
    """A capability for one path would open every file of its bundle: a slash that is written as %2F
    moves the place where the object's key begins."""
    bundles: Any = AskedBundles()
    host: Any = SimpleNamespace(store=None)
    cluster: Any = None
    routes = ObjectApi(host, bundles, cluster)

    assert 404 == (await asked(f"{path}?capability=path", routes=routes)).status_code
    assert ["dir/secret"] == bundles.paths


async def test_a_pod_changes_nothing() -> None:
    """A link that was meant for reading would replace a bundle."""
    assert 405 == (await asked("/s3/etl-1/a?capability=all", method="PUT")).status_code


async def test_each_protocol_is_refused_in_its_own_words() -> None:
    """A client of S3 or of a registry would report a broken answer, and nobody would know why."""
    plain, s3, registry = [
        await asked(path) for path in ("/bundles/etl-1/files/a?capability=old", "/s3/etl-1/a", "/v2/x/tags/list")
    ]
    lacking = await asked("/s3/other/a?capability=all")

    assert "url_expired" in plain.text
    assert ("<Code>AccessDenied</Code>" in s3.text, "<Error>" in lacking.text) == (True, True)
    assert "UNAUTHORIZED" in registry.text or "DENIED" in registry.text


async def streamed(judged: Verify, later: Callable[[], object]) -> tuple[bytes, list[object]]:
    """Returns what comes of an answer in two parts, and the connections that are cut off. `later`
    runs between the parts."""
    cut: list[object] = []
    audit: Any = HeardAudit()
    app: Any = pod_app([GatewayRoutes()], judged, cut.append, audit)
    app._app._app.state.later = later
    parts: list[bytes] = []

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        parts.append(message.get("body", b""))

    scope = {
        "type": "http", "method": "GET", "path": "/bundles/etl-1/etl-1.tar", "headers": [], "client": ("10.0.0.1", 5),
        "query_string": b"capability=all", "http_version": "1.1", "server": ("h", 80), "scheme": "http",
    }  # fmt: skip
    await app(scope, receive, send)
    return b"".join(parts), cut


@pytest.mark.parametrize(("code", "whole"), [("url_revoked", False), ("url_expired", True), ("", True)])
async def test_a_long_answer_ends_with_its_revocation(monkeypatch: pytest.MonkeyPatch, code: str, whole: bool) -> None:
    """A tenant whose capability was revoked would read the rest of a bundle of any size."""
    monkeypatch.setattr(pod_door, "RECHECK_SECS", 0.0)
    codes: list[str] = []

    def judged(_: str) -> Capability:
        if any(codes):
            raise TorrentdistError(codes[0], name="u")
        return GOOD["all"]

    text, cut = await streamed(judged, lambda: codes.append(code))

    assert (whole, [] if whole else [("10.0.0.1", 5)]) == (text == b"first second", cut)


async def test_nobody_rechecks_each_part_of_an_answer() -> None:
    """Verifying a signature for each part would take a processor from a host that serves much."""
    checks: list[str] = []

    def judged(text: str) -> Capability:
        checks.append(text)
        return GOOD["all"]

    text, _ = await streamed(judged, list)

    assert (b"first second", ["all"]) == (text, checks)


async def test_a_capability_in_the_url_comes_before_another_proof() -> None:
    """A client that always shows a token of its own could not use the URL that it was given."""
    assert 200 == (await asked("/v2/x/tags/list?capability=all", "Bearer wrong")).status_code


async def test_a_refusal_is_told_to_the_audit_without_the_capability() -> None:
    """Somebody who tries capabilities would not be seen; or the audit would hand out a good one."""
    audit = HeardAudit()
    await asked("/bundles/etl-1/files/a?capability=almost-right", audit=audit)

    assert ["url_invalid"] == [fact.result for fact in audit.heard]
    assert "almost-right" not in repr(audit.heard)
