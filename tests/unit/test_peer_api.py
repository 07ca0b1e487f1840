"""What other hosts get from a supervisor, and what takes a master's pass."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from torrentdist.host.http.operation import api_app, operations_of
from torrentdist.host.http.web import PRINCIPAL
from torrentdist.model.ids import Digest
from torrentdist.model.wire.headers import UPDATE_TYPE
from torrentdist.security.authorization import TOKEN_HOLDER, Principal, certificate_holder
from torrentdist.security.certificate_identity import CertificateIdentity, CertificateRole
from torrentdist.supervisor.gateway.peer_api import LONGEST_WAIT_SECS, PeerApi, _with_pass

pytestmark = pytest.mark.anyio
DIGEST = Digest("a" * 64)
MASTER, SUPERVISOR = (
    certificate_holder(CertificateIdentity("c", role, "x"))
    for role in (CertificateRole.MASTER, CertificateRole.SUPERVISOR)
)


class Source:
    """What a host has of one kind."""

    def __init__(self, has: bytes) -> None:
        self.has = has
        self.asked: list[tuple[str, float]] = []

    async def __call__(self, digest: Digest, secs: float) -> bytes | None:
        self.asked.append((digest, secs))
        return self.has if digest == DIGEST else None


def admitted(given: str, path: str) -> bool:
    return (given, path) == ("pass", f"/v1/metafiles/{DIGEST}")


async def asked(
    path: str, sender: Principal = TOKEN_HOLDER, sources: tuple[Source, Source, Source] | None = None
) -> httpx.Response:
    api = PeerApi(*(sources or (Source(b"meta"), Source(b"recipe"), Source(b"update"))))
    app = api_app(operations_of(api), around=lambda operation: _with_pass(operation, admitted))

    async def as_sender(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, PRINCIPAL: sender}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=as_sender), base_url="http://h") as client:
        return await client.get(path)


async def test_each_path_gives_what_it_names() -> None:
    """If this fails, a host gets a recipe where it asked for a metafile, and refuses it."""
    answers = [await asked(f"/v1/{kind}/{DIGEST}") for kind in ("metafiles", "recipes", "updates")]

    assert [b"meta", b"recipe", b"update"] == [answer.content for answer in answers]
    assert ["application/x-bittorrent", "application/octet-stream", UPDATE_TYPE] == [
        answer.headers["content-type"] for answer in answers
    ]
    assert 404 == (await asked(f"/v1/metafiles/{'b' * 64}")).status_code


async def test_a_host_waits_as_long_as_it_is_asked_to_and_not_for_ever() -> None:
    """If this fails, a host asks again and again for what is about to come, or a stranger keeps
    requests open for hours."""
    sources = Source(b"meta"), Source(b""), Source(b"")
    path = f"/v1/metafiles/{DIGEST}"
    statuses = [
        (await asked(f"{path}{query}", sources=sources)).status_code
        for query in ("", f"?wait={LONGEST_WAIT_SECS:g}", f"?wait={LONGEST_WAIT_SECS + 1:g}", "?wait=-1")
    ]

    assert [200, 200, 400, 400] == statuses
    assert [(DIGEST, 0.0), (DIGEST, LONGEST_WAIT_SECS)] == sources[0].asked


async def test_a_supervisor_needs_a_masters_pass() -> None:
    """If this fails, a stolen host reads the bundles of all others from their supervisors."""
    path, other = f"/v1/metafiles/{DIGEST}", f"/v1/recipes/{DIGEST}"
    wanted = (f"{path}?pass=pass", f"{other}?pass=pass", path, f"{path}?pass=forged")

    assert [200, 403, 403, 403] == [(await asked(one, SUPERVISOR)).status_code for one in wanted]
    assert [200, 200] == [(await asked(path, sender)).status_code for sender in (MASTER, TOKEN_HOLDER)]
