"""A port with TLS against strangers, thieves and mistakes, with our own server and client."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from tls_site import LOOPBACK, TOKEN, TestAuthority, client, make_authority, owner, port

from torrentdist.host.http import uvicorn_adapter
from torrentdist.http.access import with_token
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import HttpError, NotTrusted, origin_of
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.certificate_identity import CertificateRole
from torrentdist.security.live_tls import LiveTls
from torrentdist.security.tls_contexts import TlsFiles

pytestmark = pytest.mark.anyio

DAY = 86_400.0
SUPERVISOR, PERSON = CertificateRole.SUPERVISOR, CertificateRole.PERSON


@pytest.fixture
def ca(tmp_path: Path) -> TestAuthority:
    return make_authority(tmp_path / "ca")


def only_ca(ca: TestAuthority) -> TlsFiles:
    return TlsFiles(ca.ca, None, None)


async def sender_of(http: Http, web_port: int, path: str = "/sender", method: str = "GET") -> object:
    async with http:
        answer = await http.request(method, f"https://{LOOPBACK}:{web_port}{path}")
    return msgspec.json.decode(answer.content) if answer.status_code == 200 else answer.status_code


async def why_not(http: Http, url: str) -> str:
    async with http:
        with pytest.raises(HttpError) as caught:
            await http.get(url)
    return str(caught.value)


async def test_each_proof_gives_its_sender_and_nothing_more(ca: TestAuthority) -> None:
    """A token would count as a host, or a host as an operator."""
    async with port(LiveTls(ca.files("m1"), owner())) as web:
        host, person = ca.files("s1", SUPERVISOR), ca.files("ann", PERSON)
        found = [
            await sender_of(client(host), web.port),
            await sender_of(client(person), web.port),
            await sender_of(client(only_ca(ca), TOKEN), web.port),
            await sender_of(client(only_ca(ca)), web.port),
        ]
        operations = [
            await sender_of(client(files, token), web.port, path, "POST")
            for files, token in ((host, None), (person, None), (only_ca(ca), TOKEN), (only_ca(ca), None))
            for path in ("/host", "/operator")
        ]
        reads = [await sender_of(client(files), web.port, "/read") for files in (host, only_ca(ca))]

    assert ["s1", "host", "certificate", True] == found[0]
    assert ["ann", "operator", "certificate", False] == found[1]
    assert ["token", "operator", "token-file", False] == found[2]
    assert ["anonymous", "anyone", "none", False] == found[3]
    refused = [answer if isinstance(answer, int) else 200 for answer in operations]
    assert [200, 403, 403, 200, 403, 200, 401, 401] == refused
    assert [["s1", "host", "certificate", True], 401] == reads


async def test_a_wrong_token_is_not_saved_by_a_certificate(ca: TestAuthority) -> None:
    """A typing error in a token would go unnoticed until the certificate is gone."""
    async with port(LiveTls(ca.files("m1"), owner())) as web:
        assert await sender_of(client(ca.files("s1", SUPERVISOR), "wrong"), web.port, "/read") == 401


async def test_no_token_configured_lets_nobody_in(ca: TestAuthority) -> None:
    """A port with TLS and without a token would be open to every user of the machine."""
    async with port(LiveTls(ca.files("m1"), owner()), token=None) as web:
        assert await sender_of(client(only_ca(ca)), web.port, "/read") == 401


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda ca, other: other.files("m1"), "not of the CA that we trust"),
        (lambda ca, other: ca.files("m1", age=31 * DAY), "expired, or one of the two clocks is wrong"),
        (lambda ca, other: ca.files("m1", age=-2 * DAY), "not valid yet, or one of the two clocks is wrong"),
        (lambda ca, other: ca.files("m1", address="10.0.0.9"), f"for other addresses than {LOOPBACK}"),
    ],
    ids=["another CA", "expired", "clock skew", "another address"],
)
async def test_a_server_that_cannot_prove_itself_is_named_with_the_reason(
    ca: TestAuthority, tmp_path: Path, make: Callable[[TestAuthority, TestAuthority], TlsFiles], sentence: str
) -> None:
    """A token would go to any server at a master's address, or the user would not learn the reason
    for a refusal."""
    files = make(ca, make_authority(tmp_path / "other"))
    address = "10.0.0.9" if "10.0.0.9" in str(files.certificate) else LOOPBACK
    async with port(LiveTls(files, owner(address=address))) as web:
        url = f"https://{LOOPBACK}:{web.port}/sender"
        assert sentence in await why_not(client(only_ca(ca), TOKEN), url)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda ca, other: replace(other.files("s1", SUPERVISOR), ca=ca.ca), "which is not of the CA"),
        (lambda ca, other: ca.files("s1", SUPERVISOR, age=31 * DAY), "which has expired"),
    ],
    ids=["another CA", "expired"],
)
async def test_a_client_whose_certificate_is_refused_is_told_why(
    ca: TestAuthority, tmp_path: Path, make: Callable[[TestAuthority, TestAuthority], TlsFiles], sentence: str
) -> None:
    """An operator would look for a network problem where a certificate is wrong."""
    files = make(ca, make_authority(tmp_path / "other"))
    async with port(LiveTls(ca.files("m1"), owner())) as web:
        assert f"it refuses our certificate, {sentence}" in await why_not(
            client(files), f"https://{LOOPBACK}:{web.port}/sender"
        )


async def test_mistaken_schemes_are_named(ca: TestAuthority) -> None:
    """The commonest mistake of a migration would look like a broken network."""
    async with port(LiveTls(ca.files("m1"), owner())) as secure, port(None) as plain:
        to_secure = await why_not(Http(), f"http://{LOOPBACK}:{secure.port}/sender")
        to_plain = await why_not(client(only_ca(ca)), f"https://{LOOPBACK}:{plain.port}/sender")

    assert "https://" in to_secure
    assert "it does not speak TLS" in to_plain


async def test_a_host_of_another_cluster_under_the_same_ca_is_refused(ca: TestAuthority) -> None:
    """With a company's CA, the test cluster's hosts would be believed by the real one."""
    async with port(LiveTls(ca.files("m1"), owner())) as web:
        sentence = await why_not(client(only_ca(ca), cluster="other"), f"https://{LOOPBACK}:{web.port}/sender")

    assert "for the cluster 'prod', and ours is 'other'" in sentence


@pytest.mark.parametrize("role", [CertificateRole.MASTER, SUPERVISOR, PERSON], ids=lambda role: role.value)
async def test_a_certificate_for_another_cluster_opens_nothing(ca: TestAuthority, role: CertificateRole) -> None:
    """With a company's CA, an operator or a master of the test cluster would be one of the real
    cluster, and could have its secrets."""
    async with port(LiveTls(ca.files("m1"), owner())) as web:
        stranger = ca.files_elsewhere("x1", role, "staging")
        answers = [
            await sender_of(client(stranger, token), web.port, path, method)
            for method, path in (("GET", "/sender"), ("GET", "/read"), ("POST", "/host"), ("POST", "/operator"))
            for token in (None, TOKEN)
        ]

    assert [403] * 8 == answers


async def test_a_persons_certificate_serves_no_port(ca: TestAuthority) -> None:
    """A person could stand in for a master."""
    with pytest.raises(TorrentdistError, match="that of person m1"):
        LiveTls(ca.files("m1", PERSON), owner())


async def test_a_daemon_refuses_anothers_certificate(ca: TestAuthority) -> None:
    """A copied directory would make two hosts one, and others would refuse it without a message."""
    with pytest.raises(TorrentdistError, match="that of master m2, and this is master m1"):
        LiveTls(ca.files("m2"), owner())
    with pytest.raises(TorrentdistError, match=r"for 127\.0\.0\.1, and others reach this host at 10\.0\.0\.1"):
        LiveTls(ca.files("m1"), owner(address="10.0.0.1"))


@pytest.mark.case("F4")
async def test_a_token_never_goes_out_in_the_clear_or_to_a_named_stranger(ca: TestAuthority) -> None:
    """Every router on the way, or a server that an answer named, could act as the operator."""
    access = with_token(TOKEN, configured=["https://master.example:7060"])
    configured = access(origin_of("https://master.example:7060")).token
    here = access(origin_of("http://127.0.0.1:7060")).token
    for url in ("http://10.0.0.1:7060", "http://master.example:7060", "https://stranger.example", "https://10.6.6.6"):
        with pytest.raises(NotTrusted):
            access(origin_of(url))

    assert [TOKEN, TOKEN] == [configured, here]
    assert TOKEN == with_token(TOKEN, in_the_clear=True)(origin_of("http://10.0.0.1:7060")).token


@pytest.mark.case("F7")
async def test_changed_files_are_used_without_losing_a_connection(ca: TestAuthority) -> None:
    """Certificates last a month: each renewal would cut off every upload."""
    files = ca.files("m1", age=20 * DAY)
    tls = LiveTls(files, owner())
    before = tls.facts.serial
    async with port(tls) as web, client(only_ca(ca), TOKEN) as kept:
        url = f"https://{LOOPBACK}:{web.port}/read"
        first = await kept.get(url)
        fresh = ca.files("m1")
        assert fresh.certificate is not None
        assert files.certificate is not None
        assert not tls.reload()
        shutil.copyfile(fresh.certificate, files.certificate)
        with pytest.raises(TorrentdistError, match="the key in key_file does not belong to it"):
            tls.reload()  # only half of the pair is there yet
        during = await serial_at(web.port, ca)
        assert fresh.key is not None
        assert files.key is not None
        shutil.copyfile(fresh.key, files.key)
        assert tls.reload()
        again = await kept.get(url)
        after = await serial_at(web.port, ca)

    assert (200, 200) == (first.status_code, again.status_code)
    assert first.stream is again.stream
    assert (before, tls.facts.serial) == (during, after)
    assert before != after


@pytest.mark.case("F7")
async def test_a_ca_that_was_taken_away_lets_nobody_in_any_more(ca: TestAuthority, tmp_path: Path) -> None:
    """After a rotation the lost CA's certificates would be good for ever."""
    new = make_authority(tmp_path / "new")
    both = tmp_path / "both.pem"
    both.write_bytes(ca.ca.read_bytes() + new.ca.read_bytes())
    own = new.files("m1")
    tls = LiveTls(TlsFiles(both, own.certificate, own.key), owner())
    old_host, new_host = ca.files("s1", SUPERVISOR), new.files("s1", SUPERVISOR)
    of_old = TlsFiles(new.ca, old_host.certificate, old_host.key)
    async with port(tls) as web:
        url = f"https://{LOOPBACK}:{web.port}/sender"
        during = [await sender_of(client(files), web.port) for files in (of_old, new_host)]
        both.write_bytes(new.ca.read_bytes())
        assert await asyncio.to_thread(tls.reload)
        refused = await why_not(client(of_old), url)
        after = await sender_of(client(new_host), web.port)

    assert [["s1", "host", "certificate", True]] * 2 == during
    assert "not of the CA that it trusts" in refused
    assert ["s1", "host", "certificate", True] == after


async def test_a_client_that_never_proves_itself_is_let_go(ca: TestAuthority, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three thousand silent connections would stay open for ever."""
    monkeypatch.setattr(uvicorn_adapter, "HANDSHAKE_SECS", 0.2)
    async with port(LiveTls(ca.files("m1"), owner())) as web:
        reader, writer = await asyncio.open_connection(LOOPBACK, web.port)
        async with asyncio.timeout(5.0):
            rest = await reader.read()
        writer.close()

    assert rest == b""


async def test_older_tls_is_refused(ca: TestAuthority) -> None:
    """A downgrade would bring back flaws that TLS 1.3 has repaired."""
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_verify_locations(ca.ca)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    async with port(LiveTls(ca.files("m1"), owner())) as web:
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection(LOOPBACK, web.port, ssl=old)


async def serial_at(web_port: int, ca: TestAuthority) -> str:
    """Returns the serial of the certificate that a new connection gets."""
    context = ssl.create_default_context(cafile=ca.ca)
    _, writer = await asyncio.open_connection(LOOPBACK, web_port, ssl=context)
    serial = writer.get_extra_info("peercert")["serialNumber"]
    writer.transport.abort()
    return str(serial)


async def test_a_port_of_both_kinds_names_each_sender(ca: TestAuthority) -> None:
    """While a cluster goes over to TLS, hosts of the old or of the new kind would be cut off, or
    a silent connection would stay for ever."""
    async with port(LiveTls(ca.files("m1"), owner()), plain_too=True) as web:
        plain = f"http://{LOOPBACK}:{web.port}/host"
        async with Http(access=with_token(TOKEN)) as http:
            by_token = await http.post(plain)
        async with Http() as http:
            by_nobody = await http.post(plain)
        by_certificate = await sender_of(client(ca.files("s1", SUPERVISOR)), web.port, "/host", "POST")
        as_before = client(ca.files("s1", SUPERVISOR))
        as_before.only_https = True
        async with as_before as http:
            upgraded = await http.post(plain)

    assert ["token", "operator", "token-file", True] == msgspec.json.decode(by_token.content)
    assert 401 == by_nobody.status_code
    assert ["s1", "host", "certificate", True] == by_certificate == msgspec.json.decode(upgraded.content)


async def test_a_silent_connection_to_a_port_of_both_kinds_ends(
    ca: TestAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half-open connections would use up a master's descriptors while a cluster goes over."""
    monkeypatch.setattr(uvicorn_adapter, "HANDSHAKE_SECS", 0.2)
    async with port(LiveTls(ca.files("m1"), owner()), plain_too=True) as web:
        reader, writer = await asyncio.open_connection(LOOPBACK, web.port)
        async with asyncio.timeout(5.0):
            assert b"" == await reader.read(1)
        writer.close()
