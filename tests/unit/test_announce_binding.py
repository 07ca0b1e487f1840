"""Announces as decisions: what counts of what a peer says about itself."""

from __future__ import annotations

import pytest

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import PeerId, digest
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmEntry
from torrentdist.swarm.directory.announce_binding import AnnounceSender, RegisteredHost, bound
from torrentdist.swarm.directory.directory import SwarmDirectory

pytestmark = pytest.mark.case("F9")

ANN = AnnounceSender("10.0.0.9", "ann", is_host=False)
HOST = AnnounceSender("10.0.0.1", "token", is_host=True)
MASTER = RegisteredHost(PeerRole.MASTER, "10.0.0.1")
SUPERVISOR = RegisteredHost(PeerRole.SUPERVISOR, "10.0.0.2")
DIGEST = digest("ab" * 32)


def said(role: PeerRole = PeerRole.CLIENT, peer: str = "p", host: str = "", *, left: bool = False) -> SwarmAnnounce:
    entries = [SwarmEntry(digest=DIGEST, complete=True)]
    return SwarmAnnounce(peer=PeerId(peer), role=role, port=1, host=host, swarms=entries, left=left)


@pytest.mark.parametrize("role", [PeerRole.MASTER, PeerRole.SUPERVISOR, PeerRole.STOCK])
@pytest.mark.parametrize("known", [None, MASTER, SUPERVISOR])
def test_a_person_announces_as_a_client_only(role: PeerRole, known: RegisteredHost | None) -> None:
    """A reader's laptop could pose as a master that holds everything."""
    with pytest.raises(TorrentdistError) as caught:
        bound(said(role), ANN, known)

    assert "forbidden" == caught.value.code


@pytest.mark.parametrize("sender", [ANN, HOST])
@pytest.mark.parametrize("known", [MASTER, SUPERVISOR])
def test_nobody_announces_as_a_client_under_the_id_of_a_host(sender: AnnounceSender, known: RegisteredHost) -> None:
    """A client could replace what a host says about its copies."""
    with pytest.raises(TorrentdistError):
        bound(said(), sender, known)


def test_an_address_of_a_certificate_counts_in_any_form() -> None:
    """TLS writes an IPv6 address in full. A host with several would not be reached at its own."""
    host = AnnounceSender(
        "2001:db8::9", "s", certificate=("supervisor", "s"), addresses=frozenset(["2001:DB8:0:0:0:0:0:1"])
    )
    known = RegisteredHost(PeerRole.SUPERVISOR, "2001:db8::1")

    assert "2001:db8::1" == bound(said(PeerRole.SUPERVISOR, "s", "2001:db8::1"), host, known).host
    assert "" == bound(said(PeerRole.SUPERVISOR, "s", "2001:db8::2"), host, known).host


def test_a_supervisor_does_not_announce_as_a_master() -> None:
    """A supervisor's copy would count as that of a holder."""
    with pytest.raises(TorrentdistError):
        bound(said(PeerRole.MASTER), HOST, SUPERVISOR)
    with pytest.raises(TorrentdistError):
        bound(said(PeerRole.SUPERVISOR), HOST, MASTER)


def test_a_certificate_speaks_for_its_own_id_and_role() -> None:
    """A stolen certificate of one supervisor would be enough to pose as every master."""
    s1 = AnnounceSender("10.0.0.2", "s1", is_host=True, certificate=("supervisor", "s1"))

    assert bound(said(PeerRole.SUPERVISOR, "s1"), s1, None)
    for announce in (said(PeerRole.SUPERVISOR, "s2"), said(PeerRole.MASTER, "s1"), said(PeerRole.MASTER, "m1")):
        with pytest.raises(TorrentdistError):
            bound(announce, s1, None)


@pytest.mark.parametrize(
    ("announce", "sender", "known", "expected"),
    [
        (said(host="10.9.9.9"), ANN, None, ""),
        (said(PeerRole.SUPERVISOR, host="10.9.9.9"), HOST, None, ""),
        (said(PeerRole.SUPERVISOR, host="10.9.9.9"), HOST, SUPERVISOR, ""),
        (said(PeerRole.SUPERVISOR, host="10.0.0.2"), HOST, SUPERVISOR, "10.0.0.2"),
        (said(PeerRole.MASTER, host="10.0.0.1"), HOST, MASTER, "10.0.0.1"),
        (said(PeerRole.MASTER, host="10.0.0.7"), HOST, RegisteredHost(PeerRole.MASTER, "m1.example"), "10.0.0.7"),
    ],
)
def test_an_address_is_registered_or_that_of_the_sender(
    announce: SwarmAnnounce, sender: AnnounceSender, known: RegisteredHost | None, expected: str
) -> None:
    """One sender could send every host to any address, 1,758 of them in 20 s."""
    assert expected == bound(announce, sender, known).host


@pytest.mark.parametrize(("said_as", "expected"), [("10.0.0.2", "10.0.0.2"), ("203.0.113.9", "")])
def test_a_certificate_has_the_addresses_that_it_names(said_as: str, expected: str) -> None:
    """A hostile host could register under a name or another address, and open every engine to
    it."""
    sender = AnnounceSender("10.0.0.2", "s1", certificate=("supervisor", "s1"), addresses=frozenset({"10.0.0.2"}))
    known = [RegisteredHost(PeerRole.SUPERVISOR, host) for host in ("h1.example", "", said_as)]
    heard = [bound(said(PeerRole.SUPERVISOR, "s1", said_as), sender, registered).host for registered in known]

    assert [expected] * 3 == heard


def test_nobody_speaks_for_the_peer_of_somebody_else() -> None:
    """A stranger could say goodbye for another user's download, or replace what it has."""
    directory = SwarmDirectory()
    eve = AnnounceSender("10.0.0.8", "eve", is_host=False)
    directory.hear(said(), source_host=ANN.address, now=0.0, owner=ANN.owner)
    for announce in (said(left=True), said()):
        with pytest.raises(TorrentdistError) as caught:
            directory.hear(announce, source_host=eve.address, now=1.0, owner=eve.owner)
        assert "forbidden" == caught.value.code

    assert ["10.0.0.9"] == [member.host for member in directory.members(DIGEST)]
    directory.hear(said(left=True), source_host=ANN.address, now=2.0, owner=ANN.owner)
    assert [] == directory.members(DIGEST)


def test_a_host_takes_back_its_id() -> None:
    """A client that announces under the id of a supervisor to come could keep it out."""
    directory = SwarmDirectory()
    directory.hear(said(peer="s1"), source_host=ANN.address, now=0.0, owner=ANN.owner)
    directory.hear(said(PeerRole.SUPERVISOR, "s1"), source_host="10.0.0.2", now=1.0, owner=HOST.owner)
    with pytest.raises(TorrentdistError):
        directory.hear(said(peer="s1"), source_host=ANN.address, now=2.0, owner=ANN.owner)

    assert ["10.0.0.2"] == [member.host for member in directory.members(DIGEST)]


def test_the_limit_of_peers_counts_the_source() -> None:
    """One source could fill the directory under forged addresses."""
    directory = SwarmDirectory(limits=None)
    for number in range(20):
        announce = bound(said(peer=f"p{number}", host=f"10.9.9.{number}"), ANN, None)
        directory.hear(announce, source_host=ANN.address, now=0.0, owner=ANN.owner)

    assert ["10.0.0.9"] == directory.addresses((), 0.0)
