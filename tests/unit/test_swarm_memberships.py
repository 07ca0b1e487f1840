"""How a daemon becomes a member of the swarm, without a network."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tls_site import LOOPBACK, make_authority, owner
from zookeeper_fixtures import eventually

from torrentdist.client.swarm_access import swarm_memberships as command_memberships
from torrentdist.host.certificates import certificate_renewal, swarm_memberships
from torrentdist.host.certificates.certificate_renewal import CertificateRenewal
from torrentdist.host.certificates.swarm_memberships import SwarmMemberships
from torrentdist.http.api_calls import Request
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import Answer, HttpError
from torrentdist.model.access.swarm_certificate_messages import SwarmCertificatesBody, SwarmCertificatesView
from torrentdist.model.access.swarm_membership import SwarmMembership
from torrentdist.model.configuration.config import ClientConfig, Config, SwarmConfig, TlsConfig
from torrentdist.model.configuration.settings import load
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authority.authority_files import read_authority
from torrentdist.security.authority.certificates import issue, new_key
from torrentdist.security.authority.membership_files import read_memberships
from torrentdist.security.authority.pem_texts import certificate_pem, key_pem, parse_certificate, parse_public_key
from torrentdist.security.authority.swarm_authority import HOST_LIFETIME, PERSON_LIFETIME, issued_for, swarm_authority
from torrentdist.security.certificate_identity import CertificateIdentity, CertificateRole
from torrentdist.security.live_tls import LiveTls
from torrentdist.security.private_files import replace_private, write_private
from torrentdist.security.tls_contexts import TlsFiles


def started(home: Path, *, key: bool, kept_in: Path, must_issue: bool = True) -> list[Sequence[SwarmMembership]]:
    """Starts a daemon's memberships. Returns what the engine was told."""
    told: list[Sequence[SwarmMembership]] = []
    if key:
        write_private(home / "ca.key", key_pem(new_key()))
    tls = TlsConfig(mode="mutual", key_file=str(home / "key.pem"), ca_key_file=str(home / "ca.key") if key else "")
    config = Config(tls=tls, swarm=SwarmConfig(certificate_file=str(kept_in / "swarm.pem")))

    async def scenario() -> None:
        async with Http() as http:
            await SwarmMemberships(config, http, list, told.append, list).start(must_issue=must_issue)

    asyncio.run(scenario())
    return told


def test_a_master_is_a_member_from_its_start_on(tmp_path: Path) -> None:
    """If this failed, a master would seed nothing until another one had answered."""
    (held,) = started(tmp_path, key=True, kept_in=tmp_path)

    assert tuple(held) == read_memberships(tmp_path / "swarm.pem")


FRESH_DAEMON = """
import asyncio, sys, threading
from torrentdist.host.certificates.swarm_memberships import SwarmMemberships
from torrentdist.http.connection_pool import Http
from torrentdist.model.configuration.config import Config, SwarmConfig, TlsConfig

class OnTheLoop:
    def find_spec(self, name, *_):
        if name.startswith("cryptography") and threading.current_thread() is threading.main_thread():
            print(name)

async def scenario():
    sys.meta_path.insert(0, OnTheLoop())
    tls = TlsConfig(mode="mutual", ca_key_file=sys.argv[1] + "/ca.key")
    config = Config(tls=tls, swarm=SwarmConfig(certificate_file=sys.argv[1] + "/swarm.pem"))
    async with Http() as http:
        await SwarmMemberships(config, http, list, lambda told: None, list).start(must_issue=True)

asyncio.run(scenario())
"""
"""Starts the memberships of a daemon that has used no cryptography yet, and prints what is loaded
in the thread of the event loop."""


def test_the_first_key_holds_up_no_daemon(tmp_path: Path) -> None:
    """If this failed, a daemon that goes over to TLS would answer nobody for 50 ms while it loads a
    library."""
    write_private(tmp_path / "ca.key", key_pem(new_key()))
    ran = subprocess.run([sys.executable, "-c", FRESH_DAEMON, str(tmp_path)], capture_output=True, text=True)

    assert ("", 0) == (ran.stdout, ran.returncode), ran.stderr
    assert (tmp_path / "swarm.pem").exists()


@pytest.mark.case("F7")
def test_a_key_that_changes_while_certificates_are_made_is_used(tmp_path: Path) -> None:
    """If this failed, a master would issue under the old CA of the swarm for another quarter of an
    hour, when two steps of a rotation follow each other closely."""
    old, new = key_pem(new_key()), key_pem(new_key())
    write_private(tmp_path / "ca.key", old)
    tls = TlsConfig(mode="mutual", key_file=str(tmp_path / "key.pem"), ca_key_file=str(tmp_path / "ca.key"))
    held: list[int] = []

    def join(memberships: Sequence[SwarmMembership]) -> None:
        if not held:
            replace_private(tmp_path / "ca.key", old + new)
        held.append(len(memberships))

    async def scenario() -> None:
        async with Http() as http:
            members = SwarmMemberships(Config(tls=tls), http, list, join, list)
            await members.start(must_issue=True)
            following = asyncio.create_task(members.follow())
            try:
                await eventually(lambda: held[-1] == 2)
            finally:
                following.cancel()

    asyncio.run(scenario())


def test_a_file_that_cannot_be_written_stops_no_daemon(tmp_path: Path) -> None:
    """If this failed, a host whose certificates are mounted read-only could not start."""
    assert [1] == [len(held) for held in started(tmp_path, key=True, kept_in=tmp_path / "missing")]


@pytest.mark.parametrize(("key", "members"), [(True, 1), (False, 0)], ids=["a master", "a supervisor"])
def test_a_damaged_file_stops_no_daemon(key: bool, members: int, tmp_path: Path) -> None:
    """If this failed, a daemon whose file of certificates is damaged would end at each start,
    though it can get new ones."""
    write_private(tmp_path / "swarm.pem", key_pem(new_key()))

    assert members == len(started(tmp_path, key=key, kept_in=tmp_path, must_issue=key))
    assert not key or 1 == len(read_memberships(tmp_path / "swarm.pem"))


class Counted:
    """Masters that do not answer, and the questions that they were asked."""

    asked = 0

    async def post(self, *_: object, **__: object) -> Answer:
        self.asked += 1
        raise HttpError("nobody answers")


@pytest.mark.case("F7")
@pytest.mark.parametrize(("moments", "expected"), [((1e10, 1e10 + 1), 1), ((1e10, 1e9), 2), ((1e10, 1e9, 1e9 + 1), 2)])
def test_a_clock_that_was_ahead_delays_no_new_certificate(
    tmp_path: Path, moments: Sequence[float], expected: int
) -> None:
    """If this failed, the certificates of a host whose clock was wrong at its start would end
    unrenewed."""
    started(tmp_path, key=True, kept_in=tmp_path)
    tls = TlsConfig(mode="mutual", key_file=str(tmp_path / "key.pem"))
    config = Config(tls=tls, swarm=SwarmConfig(certificate_file=str(tmp_path / "swarm.pem")))
    http: Any = Counted()

    async def scenario() -> None:
        members = SwarmMemberships(config, http, lambda: ["http://m1"], lambda _: None, list)
        await members.start(must_issue=False)
        for now in moments:
            with contextlib.suppress(TorrentdistError):
                await members._look(now)

    asyncio.run(scenario())

    assert expected == http.asked


class OldTls:
    """Half of the certificate's life is over, and its file is gone."""

    def __init__(self, home: Path) -> None:
        self.looks = 0
        self.facts = SimpleNamespace(begins_at=0.0, expires_at=1.0)
        self._files = TlsFiles(home / "ca.pem", home / "cert.pem", home / "key.pem")

    @property
    def files(self) -> TlsFiles:
        self.looks += 1
        return self._files


@pytest.mark.parametrize(("moments", "expected"), [((1e10, 1e10 + 1), 1), ((1e10, 1e9), 2), ((1e10, 1e9, 1e9 + 1), 2)])
def test_a_clock_that_was_ahead_delays_no_renewal(tmp_path: Path, moments: Sequence[float], expected: int) -> None:
    """If this failed, the certificate of a host whose clock was wrong at its start would expire."""
    tls: Any = OldTls(tmp_path)

    async def scenario() -> None:
        renewal = CertificateRenewal(tls, list)
        for now in moments:
            await renewal.renew_if_due(now)

    asyncio.run(scenario())

    assert expected == tls.looks


@pytest.mark.parametrize(
    ("days", "hours_ahead", "taken"), [(16, 0.0, True), (16, 6.0, False), (29, 6.0, True)],
    ids=["a right clock", "a leader that is ahead", "an old certificate"],
)  # fmt: skip
def test_a_certificate_that_is_not_valid_yet_replaces_no_good_one(
    tmp_path: Path, days: int, hours_ahead: float, taken: bool
) -> None:
    """If this failed, a leader whose clock jumps ahead would cut off each host whose certificate is
    renewed just then, until that time has come."""
    now = time.time()
    files = make_authority(tmp_path / "ca").files("m1", age=days * 86_400.0)
    assert files.certificate is not None
    before = files.certificate.read_bytes()
    identity, key = CertificateIdentity("prod", CertificateRole.MASTER, "m1"), parse_certificate(before).public_key()
    fresh = issue(read_authority(tmp_path / "ca"), identity, [LOOPBACK], key, now + hours_ahead * 3600.0)
    with contextlib.nullcontext() if taken else pytest.raises(ValueError, match="not valid now"):
        certificate_renewal._take(files, certificate_pem(fresh), now)

    assert files.certificate.read_bytes() == (certificate_pem(fresh) if taken else before)


@pytest.mark.parametrize("hours_ahead", [0.0, 6.0])
def test_a_certificate_that_is_not_valid_yet_is_renewed(tmp_path: Path, hours_ahead: float) -> None:
    """If this failed, a host that joined while the leader's clock was ahead would stay cut off
    after that clock is right again."""
    files = make_authority(tmp_path / "ca").files("m1", age=-3600.0 * hours_ahead)

    assert bool(hours_ahead) is certificate_renewal.is_due(LiveTls(files, owner()), time.time())


class IssuingMasters:
    """Masters whose clocks differ, by URL. Each issues certificates of the same swarm."""

    def __init__(self, ahead: Mapping[str, float]) -> None:
        self.ahead = dict(ahead)
        self._authority = swarm_authority(new_key())

    async def post(self, url: str, *, content: bytes) -> Answer:
        key = parse_public_key(msgspec.json.decode(content, type=SwarmCertificatesBody).public_key.encode())
        made_at = time.time() + self.ahead[url.removesuffix(swarm_memberships.PATH)]
        issued = issued_for([self._authority], key, HOST_LIFETIME, made_at)
        return Answer(200, content=msgspec.json.encode(SwarmCertificatesView(memberships=issued)))


HOUR = 3600.0


@pytest.mark.case("F7")
@pytest.mark.parametrize(
    ("ages", "later", "replaced"),
    [
        ({"m1": 13 * HOUR}, {"m1": 0.0}, True),
        ({"m1": 13 * HOUR}, {"m1": -6 * HOUR}, False),
        ({"m1": 13 * HOUR}, {"m1": -6 * HOUR, "m2": 0.0}, True),
        ({"m1": 20 * HOUR}, {"m1": -6 * HOUR}, True),
        ({"m1": -6 * HOUR}, {"m1": 0.0}, True),
        ({"m1": -6 * HOUR}, {"m1": -6 * HOUR}, False),
        ({"m1": -6 * HOUR, "m2": 0.0}, {"m2": 0.0}, False),
    ],
    ids=["half", "a master ahead", "one of two ahead", "near its end", "right again", "still ahead", "the right one"],
)
def test_a_master_that_is_ahead_takes_nobody_out_of_the_swarm(
    tmp_path: Path, ages: Mapping[str, float], later: Mapping[str, float], replaced: bool
) -> None:
    """If this failed, peers would refuse a host that asked a master whose clock is ahead, and go on
    to after that clock is right again."""
    tls = TlsConfig(mode="mutual", key_file=str(tmp_path / "key.pem"))
    http: Any = IssuingMasters({url: -age for url, age in ages.items()})
    held: list[Sequence[SwarmMembership]] = []

    async def scenario() -> None:
        members = SwarmMemberships(Config(tls=tls), http, lambda: list(http.ahead), held.append, list)
        await members._renew(time.time())
        http.ahead = {url: -age for url, age in later.items()}
        await members._renew(time.time())

    asyncio.run(scenario())

    assert (2 if replaced else 1) == len(held)
    assert min(later.values()) < 0 or all(each.is_valid(time.time()) for each in held[-1])


def test_a_master_without_a_key_says_what_it_lacks(tmp_path: Path) -> None:
    """If this failed, a cluster whose certificates come from elsewhere would start, and no host
    could ever join its swarm."""
    with pytest.raises(TorrentdistError, match=r"swarm\.ca_key_file"):
        started(tmp_path, key=False, kept_in=tmp_path)
    assert [] == started(tmp_path, key=False, kept_in=tmp_path, must_issue=False)


@pytest.mark.parametrize("setting", ["on", "maybe"])
def test_a_swarm_with_tls_needs_masters_with_tls(setting: str, tmp_path: Path) -> None:
    """If this failed, a host would wait for a certificate that no master gives."""
    with pytest.raises(TorrentdistError, match=r"swarm\.tls"):
        load(flags={"swarm.tls": setting}, environ={}, cwd=tmp_path, system_dir=tmp_path)


@pytest.mark.parametrize(("age_secs", "renewed"), [(0.0, False), (3000.0, True)], ids=["new", "past its half"])
def test_a_download_that_goes_on_renews_what_soon_expires(tmp_path: Path, age_secs: float, renewed: bool) -> None:
    """If this failed, a download that is run again would lose its peers minutes later, when the
    certificate of its first attempt expires."""
    authority, ages = swarm_authority(new_key()), [age_secs, 0.0]

    async def ask(request: Request, parse: Callable[[Answer], SwarmCertificatesView], secs: float) -> object:
        body = msgspec.json.decode(request.content or b"", type=SwarmCertificatesBody)
        key, made_at = parse_public_key(body.public_key.encode()), time.time() - ages.pop(0)
        issued = issued_for([authority], key, PERSON_LIFETIME, made_at)
        return parse(Answer(200, content=msgspec.json.encode(SwarmCertificatesView(memberships=issued))))

    client: Any = SimpleNamespace(masters=["https://m1"], config=ClientConfig(), read_patiently=ask)
    first, second = (asyncio.run(command_memberships(client, [], tmp_path / "swarm.pem")) for _ in range(2))

    assert renewed is (first != second)
