"""Which certificates and proofs count, when a long answer is cut off, and what the audit is
told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torrentdist.host.http import authentication
from torrentdist.host.http.authentication import MOST_PATH, Authentication, CertificateRules, OtherProof, principal_of
from torrentdist.host.http.web import PEER
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import AccessAudited
from torrentdist.security.authorization import STRANGER, TOKEN_HOLDER, Principal, Proof, Role
from torrentdist.security.certificate_identity import CertificateIdentity, CertificateRole
from torrentdist.security.tls_contexts import PeerCertificate

pytestmark = pytest.mark.anyio
TOKEN = {"authorization": "Bearer t"}
ANN = Principal("ann", Role.READER, Proof.TOKEN)


def holder(id_: str = "h1", cluster: str = "c") -> PeerCertificate:
    return PeerCertificate(CertificateIdentity(cluster, CertificateRole.SUPERVISOR, id_), "1", 0.0)


def rules(*, for_all: bool = False) -> CertificateRules:
    return CertificateRules(lambda peer: peer.identity.id == "gone", for_all, lambda: "c")


class Audited:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.refusals: list[AccessAudited] = []

    def changed(self, fact: AccessAudited) -> None:
        raise AssertionError(fact)

    def refused(self, fact: AccessAudited) -> None:
        self.refusals.append(fact)


async def say_sender(scope: Scope, receive: Receive, send: Send) -> None:
    sender = principal_of(Request(scope))
    await JSONResponse([sender.name, sender.role, sender.how, sender.is_host])(scope, receive, send)


def no_proof(_: Scope) -> Principal | None:
    return None


async def answered(
    *,
    peer: PeerCertificate | None = None,
    headers: dict[str, str] | None = None,
    path: str = "/v1/x",
    token: str | None = "t",
    other: OtherProof = no_proof,
    certificates: CertificateRules | None = None,
    audit: Audited | None = None,
    app: ASGIApp = say_sender,
) -> httpx.Response:
    """Returns the answer to one request. `peer`: the certificate that its connection has shown."""
    checked = Authentication(app, token, ("/open/", "/exact"), other, certificates=certificates, audit=audit)

    async def with_peer(scope: Scope, receive: Receive, send: Send) -> None:
        await checked({**scope, "state": {} if peer is None else {PEER: peer}}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(with_peer), base_url="http://daemon") as http:
        return await http.get(path, headers=headers or {})


def said(answer: httpx.Response) -> object:
    return answer.json() if answer.status_code == 200 else answer.json()["error"]


HOST = ["h1", "host", "certificate", True]
SHARED = ["token", "operator", "token-file", True]


async def test_a_certificate_names_its_holder_unless_a_token_is_shown() -> None:
    """A user with a token gets the rights of the host whose certificate it shows, or a host without
    a token gets none."""
    alone = await answered(peer=holder(), certificates=rules())
    with_token = await answered(peer=holder(), headers=TOKEN, certificates=rules())
    wrong_token = await answered(peer=holder(), headers={"authorization": "Bearer x"}, certificates=rules())

    assert [HOST, SHARED, "unauthorized"] == [said(alone), said(with_token), said(wrong_token)]


@pytest.mark.parametrize("path", ["/v1/x", "/open/x"])
@pytest.mark.parametrize(("peer", "code"), [(holder(cluster="d"), "other_cluster"), (holder("gone"), "host_revoked")])
async def test_a_certificate_that_counts_for_nothing_opens_nothing(peer: PeerCertificate, code: str, path: str) -> None:
    """A stolen host, or one of another cluster with the same CA, is served on."""
    answers = [await answered(peer=peer, headers=more, path=path, certificates=rules()) for more in ({}, TOKEN)]

    assert [code, code] == [said(answer) for answer in answers]
    assert 403 == answers[0].status_code


async def test_where_hosts_have_certificates_a_token_makes_no_host() -> None:
    """A stolen token passes for a host, or everybody on the machine for an operator."""
    person = await answered(headers=TOKEN, certificates=rules(for_all=True))
    host = await answered(peer=holder(), certificates=rules(for_all=True))
    local = await answered(token=None, certificates=rules(for_all=True))
    plain_local = await answered(token=None, certificates=rules())

    assert [["token", "operator", "token-file", False], HOST] == [said(person), said(host)]
    assert ["unauthorized", ["anonymous", "operator", "none", True]] == [said(local), said(plain_local)]


@pytest.mark.parametrize(
    ("path", "is_open"),
    [("/open/x", True), ("/open/", True), ("/exact", True), ("/exact/x", False), ("/open", False), ("/x/open/", False)],
)
async def test_only_open_paths_need_no_proof(path: str, is_open: bool) -> None:
    """A page beside an open one is readable for everybody, or a probe needs a token."""
    expected = ["anonymous", "anyone", "none", False] if is_open else "unauthorized"

    assert expected == said(await answered(path=path))


def raising(code: str) -> OtherProof:
    def prove(_: Scope) -> Principal | None:
        raise TorrentdistError(code, name="ann", id="ann")

    return prove


async def test_a_further_proof_counts_where_the_token_does_not() -> None:
    """A named token opens nothing, or one that was revoked closes even what is open to all."""
    proven = await answered(other=lambda _: ANN)
    shared = await answered(headers=TOKEN, other=raising("token_revoked"))
    ended = await answered(other=raising("token_revoked"))
    on_open = await answered(path="/exact", other=raising("token_revoked"))

    assert [["ann", "reader", "token", False], SHARED] == [said(proven), said(shared)]
    assert ["token_revoked", ["anonymous", "anyone", "none", False]] == [said(ended), said(on_open)]


async def test_the_audit_hears_who_was_refused_what() -> None:
    """An operator cannot tell from where somebody tries tokens, or a long path fills the disk."""
    audit = Audited()
    await answered(path="/v1/" + "x" * MOST_PATH, audit=audit)
    await answered(other=raising("token_revoked"), audit=audit)
    await answered(headers=TOKEN, audit=audit)
    first, second = audit.refusals

    assert ("anonymous", "anyone", "none", "unauthorized") == (first.who, first.sender_role, first.how, first.result)
    assert ("GET /v1/" + "x" * (MOST_PATH - 4), "127.0.0.1") == (first.operation, first.source)
    assert ("ann", "token_revoked", "GET /v1/x") == (second.who, second.result, second.operation)


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


async def parts_of_a_long_answer(
    monkeypatch: pytest.MonkeyPatch, later: Callable[[], str], steps: tuple[float, ...]
) -> list[bytes]:
    """Returns the parts that leave while the clock goes on by `steps`. `later` returns the error
    of the sender's proof, or nothing."""
    clock, sent = Clock(), list[bytes]()
    monkeypatch.setattr(authentication, "time", clock)

    def prove(_: Scope) -> Principal | None:
        if code := later():
            raise TorrentdistError(code, name="ann", id="ann")
        return ANN

    async def parts() -> AsyncIterator[bytes]:
        for number, step in enumerate(steps):
            clock.now += step
            yield b"%d" % number

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await StreamingResponse(parts()).stream_response(send)

    async def send(message: Message) -> None:
        sent.append(message.get("body", b""))

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {}

    scope: Scope = {"type": "http", "method": "GET", "path": "/v1/x", "headers": []}
    try:
        await Authentication(app, "t", (), prove)(scope, receive, send)
    except TorrentdistError as error:
        sent.append(error.code.encode())
    return [part for part in sent if part]


@pytest.mark.parametrize("code", ["token_revoked", "host_revoked"])
async def test_a_long_answer_ends_soon_after_a_revocation(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """A revoked token reads on until its download is complete."""
    proofs = iter(["", "", code, code, code])
    sent = await parts_of_a_long_answer(monkeypatch, lambda: next(proofs), (1.0, 1.0, 1.9, 0.1, 9.0))

    assert [b"0", b"1", b"2", code.encode()] == sent


async def test_a_proof_that_has_grown_old_lets_its_answer_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A download that takes longer than its token lives never ends."""
    proofs = iter(["", "token_expired", "token_expired"])
    sent = await parts_of_a_long_answer(monkeypatch, lambda: next(proofs), (2.0, 2.0))

    assert [b"0", b"1"] == sent


def test_a_stranger_and_the_token_are_told_apart() -> None:
    """A sender without a proof reads what the daemons read."""
    assert (False, True) == (STRANGER.is_host, TOKEN_HOLDER.is_host)
