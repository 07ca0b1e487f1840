"""How a gateway knows who pushes an image: by the token of the request, and by its masters."""

from __future__ import annotations

import asyncio
import hashlib
import json
from base64 import b64encode
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest
from scripted_http import ScriptedHttp
from starlette.requests import Request
from tls_site import make_authority

from torrentdist.host.http.web import PRINCIPAL
from torrentdist.host.process.port_guard import open_guard
from torrentdist.model.access.token_messages import WhoamiView
from torrentdist.model.configuration.config import Config, TlsConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.swarm_messages import PeerRole
from torrentdist.security.authorization import LOCAL, Role
from torrentdist.supervisor.images import pushers
from torrentdist.supervisor.images.pushers import KNOWN_SECS, LONGEST_TOKEN, Pushers, token_in
from torrentdist.supervisor.images.registry_api import RegistryApi

pytestmark = pytest.mark.anyio


def basic(text: str) -> str:
    return f"Basic {b64encode(text.encode('latin-1')).decode()}"


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        ("", ""), ("Bearer  t.s ", "t.s"), ("bearer t", "t"), (basic("any:t:s"), "t:s"), (basic("any:"), ""),
        (basic("any:t").replace("Basic", "BASIC"), "t"), ("Digest abc", ""),
        (f"Bearer {'x' * LONGEST_TOKEN}", "x" * LONGEST_TOKEN),
    ],
)  # fmt: skip
def test_a_token_is_a_password_or_a_bearer_token(authorization: str, expected: str) -> None:
    """If this fails, `docker login` with a right token is refused."""
    assert expected == token_in(authorization)


@pytest.mark.parametrize(
    "authorization",
    ["Basic !!", "Basic a", basic("any:é"), f"Bearer {'x' * (LONGEST_TOKEN + 1)}"],
)
def test_what_cannot_be_read_is_refused(authorization: str) -> None:
    """If this fails, a damaged password ends as an error of the server."""
    with pytest.raises(TorrentdistError) as refused:
        token_in(authorization)

    assert "unauthorized" == refused.value.code


class Bench:
    """A gateway whose masters answer by a script."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.asked: list[str] = []
        self.schemes: list[str] = []
        self.role = "uploader"
        self.masters = ["http://127.0.0.1:7060"]
        guard: Any = SimpleNamespace(token="shared", tls=None, only_https=False)
        self.guard = guard
        self.pushers = Pushers(self.guard, lambda: self.masters, in_the_clear=False)
        monkeypatch.setattr(pushers, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(pushers, "Http", lambda access: ScriptedHttp(self._answer, access))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.path)
        self.schemes.append(request.url.scheme)
        told = WhoamiView(name="ann", role=self.role, bundles="app-*", expires_at=None, how="token", reads="app-*,lib")
        return httpx.Response(200, content=msgspec.json.encode(told))


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def pushed_with(authorization: str) -> Request:
    headers = [(b"authorization", authorization.encode())] if authorization else []
    return Request({"type": "http", "method": "PUT", "path": "/v2/", "headers": headers})


async def test_a_pusher_is_who_the_masters_say(bench: Bench) -> None:
    """If this fails, a pusher may publish what its token does not allow."""
    found = await bench.pushers.pusher(pushed_with("Bearer t1"), "push")

    assert ("ann", Role.UPLOADER, "app-*", ("app-*", "lib"), "t1") == (
        found.principal.name, found.principal.role, found.principal.bundles, found.principal.reads, found.token,
    )  # fmt: skip
    assert ["/v1/whoami"] == bench.asked


async def test_a_token_that_may_not_push_is_refused(bench: Bench) -> None:
    """If this fails, a reader pushes images, or a role of a newer release ends as an error."""
    codes = []
    for role, needed in (("reader", Role.UPLOADER), ("uploader", Role.OPERATOR), ("of-a-newer-release", Role.UPLOADER)):
        bench.role = role
        with pytest.raises(TorrentdistError) as refused:
            await bench.pushers.pusher(pushed_with(f"Bearer {role}"), "push", needed)
        codes.append(refused.value.code)

    assert ["role_needed"] * 3 == codes


@pytest.mark.parametrize(("token", "tls"), [("shared", None), (None, object())])
async def test_a_push_without_a_token_is_refused(bench: Bench, token: str | None, tls: object) -> None:
    """If this fails, a push is made with the proof of the host instead of its pusher's."""
    bench.guard.token, bench.guard.tls = token, tls
    with pytest.raises(TorrentdistError) as refused:
        await bench.pushers.pusher(pushed_with(""), "push")

    assert ("unauthorized", []) == (refused.value.code, bench.asked)


async def test_an_open_cluster_needs_no_token(bench: Bench) -> None:
    """If this fails, nobody can push where no token is configured."""
    bench.guard.token = None

    assert "ann" == (await bench.pushers.pusher(pushed_with(""), "push")).principal.name


async def test_masters_get_a_pushers_token_over_https_alone(bench: Bench, tmp_path: Path) -> None:
    """If this fails, nobody can push to a cluster that has just gone over to TLS: the records of
    its masters may still say http, and a gateway asks them in the clear."""
    files = make_authority(tmp_path / "ca").files("m1")
    names = {"certificate_file": str(files.certificate), "key_file": str(files.key), "ca_file": str(files.ca)}
    guard = open_guard(Config(tls=TlsConfig(mode="mutual", **names)), PeerRole.MASTER, "m1", "127.0.0.1")
    await Pushers(guard, lambda: bench.masters, in_the_clear=False).principal("t1")

    assert ["https"] == bench.schemes


async def test_what_a_token_may_do_is_asked_again(bench: Bench) -> None:
    """If this fails, each part of an image costs the masters a question, or a token that was
    revoked goes on."""
    for moment in (0.0, KNOWN_SECS - 0.1):
        bench.now = 100.0 + moment
        await bench.pushers.principal("t1")
    once = len(bench.asked)
    bench.now = 100.0 + KNOWN_SECS
    await bench.pushers.principal("t1")
    await bench.pushers.principal("t2")

    assert (1, 3) == (once, len(bench.asked))


async def test_no_token_is_kept_for_long_and_few_are_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, whoever tries out tokens uses up the memory of a host."""
    monkeypatch.setattr(pushers, "MOST_KNOWN", 2)
    for token in ("t1", "t2", "t3", "t3"):
        await bench.pushers.principal(token)
    kept = set(bench.pushers._known)
    monkeypatch.setattr(pushers, "KNOWN_SECS", 0.0)
    await bench.pushers.principal("t4")
    at_once = len(bench.pushers._known)
    await asyncio.sleep(0.001)

    assert {hashlib.sha256(token).digest() for token in (b"t2", b"t3")} == kept
    assert (2, 1) == (at_once, len(bench.pushers._known))


async def test_a_host_that_knows_no_master_says_so(bench: Bench) -> None:
    """If this fails, a push waits for masters of which the host has not heard."""
    bench.masters = []
    with pytest.raises(TorrentdistError) as refused:
        await bench.pushers.principal("t1")

    assert "unreachable" == refused.value.code


async def test_a_login_without_a_master_is_good_for_pulls_alone(bench: Bench) -> None:
    """If this fails, a client that has logged in once pulls nothing while the masters are away, or
    it pushes with a token that nobody has verified."""
    unused: Any = None
    bench.masters = []
    registry = RegistryApi(unused, unused, unused, bench.pushers, unused)
    login = pushed_with(basic("any:t1"))
    login.scope[PRINCIPAL] = LOCAL
    looked, given = await registry.registry(login), await registry.registry_token(login)
    token = json.loads(bytes(given.body))["token"]
    with pytest.raises(TorrentdistError) as refused:
        await bench.pushers.pusher(pushed_with(f"Bearer {token}"), "push")

    assert (200, "t1", "unreachable") == (looked.status_code, token, refused.value.code)
