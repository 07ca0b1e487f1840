"""The standard announce: the meaning of a client's query, and the bencoded answer."""

from __future__ import annotations

from urllib.parse import quote_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torrentdist.bundle import bencode
from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmEntry
from torrentdist.swarm.directory.directory import Periods, SwarmDirectory
from torrentdist.swarm.directory.tracker import AnnounceEvent, Tracker, announce_key, parse_query

SECRET = "cluster secret"
D1 = Digest("00ff2526" + "7f2b20" + "ab" * 25)
"""A digest whose bytes include everything that a query string has to escape: zero, percent,
ampersand, plus and blank."""
D2 = Digest("2" * 64)
KEY = announce_key(SECRET, D1)
PERIODS = Periods(seeding_secs=10.0, stock_secs=300.0, grace_secs=0.0)


class House:
    """A directory behind a tracker."""

    def __init__(self) -> None:
        self.directory = SwarmDirectory(periods=PERIODS)
        self.tracker = Tracker(self.directory, secret=SECRET, digests=lambda _: [D2, D1])

    def native(self, name: str, host: str, *, complete: bool = True, role: PeerRole = PeerRole.SUPERVISOR) -> None:
        entry = SwarmEntry(digest=D1, complete=complete)
        request = SwarmAnnounce(peer=PeerId(name), role=role, port=7001, swarms=[entry])
        self.directory.announce(request, source_host=host, now=0.0)

    def ask(self, query: bytes, *, key: str = KEY, source: str = "10.0.0.2", now: float = 0.0) -> dict[bytes, object]:
        answer = bencode.decode(self.tracker.answer(query, key=key, source_host=source, now=now))
        assert isinstance(answer, dict)
        return dict(answer)


def query(digest: Digest = D1, *, peer: bytes = b"-LT2110-abcdefghijkl", port: int = 6881, more: str = "") -> bytes:
    info_hash = quote_from_bytes(bytes.fromhex(digest)[:20])
    return f"info_hash={info_hash}&peer_id={quote_from_bytes(peer)}&port={port}&left=1{more}".encode()


def test_a_stock_client_gets_peers_in_the_compact_form() -> None:
    """No stock client could take part."""
    house = House()
    house.native("m1", "10.0.0.1", role=PeerRole.MASTER)
    answer = house.ask(query())

    assert answer == {
        b"complete": 1,
        b"incomplete": 1,
        b"interval": 300,
        b"min interval": 5,
        b"peers": bytes([10, 0, 0, 1]) + (7001).to_bytes(2),
    }


def test_peers_with_ipv6_come_in_a_list_of_their_own() -> None:
    """A client would read eighteen bytes as three IPv4 peers."""
    house = House()
    house.native("m1", "fd00::1")
    house.native("m2", "10.0.0.1")
    answer = house.ask(query())

    assert answer[b"peers"] == bytes([10, 0, 0, 1]) + (7001).to_bytes(2)
    assert answer[b"peers6"] == bytes.fromhex("fd00" + "00" * 13 + "01") + (7001).to_bytes(2)


def test_a_client_that_wants_no_compact_form_gets_dictionaries() -> None:
    """Old clients would not understand the answer."""
    house = House()
    house.native("m1", "10.0.0.1")
    house.native("m2", "fd00::1")
    answer = house.ask(query(more="&compact=0&no_peer_id=1"))

    peers = answer[b"peers"]
    assert isinstance(peers, list)
    assert sorted(peers, key=str) == [{b"ip": b"10.0.0.1", b"port": 7001}, {b"ip": b"fd00::1", b"port": 7001}]
    assert b"peers6" not in answer


def test_our_peers_hear_of_a_stock_client() -> None:
    """A stock client could take pieces and never give any."""
    house = House()
    house.ask(query(port=6999))
    member = house.directory.members(D1)[0]

    assert (member.role, member.host, member.port, member.entry.complete) == (PeerRole.STOCK, "10.0.0.2", 6999, False)


def test_the_address_that_a_client_names_is_not_believed() -> None:
    """A client with a tracker URL could open all filters to any address, or aim all peers at a
    victim."""
    house = House()
    house.ask(query(more="&ip=10.6.6.6&ipv4=10.6.6.7&ipv6=fd00::6"))

    assert house.directory.addresses((), 0.0) == ["10.0.0.2"]


def test_a_client_is_itself_again_at_its_next_announce() -> None:
    """A stock client would be counted twice, and handed out to itself."""
    house = House()
    house.ask(query())
    answer = house.ask(query(), now=60.0)

    assert (answer[b"complete"], answer[b"incomplete"], answer[b"peers"]) == (0, 1, b"")


def test_no_host_speaks_for_a_client_on_another() -> None:
    """Any host that saw a client's peer id could sign it off."""
    house = House()
    house.ask(query(), source="10.0.0.2")
    house.ask(query(more="&event=stopped"), source="10.0.0.3")

    assert house.directory.counts(D1).incomplete == 1


def test_one_client_in_two_swarms_stays_in_both() -> None:
    """An announce is about one torrent; a second one would end the first."""
    house = House()
    house.ask(query(D1))
    house.ask(query(D2), key=announce_key(SECRET, D2))

    assert (house.directory.counts(D1).incomplete, house.directory.counts(D2).incomplete) == (1, 1)


def test_a_client_that_stops_is_forgotten() -> None:
    """Peers would dial a stopped client for ten minutes."""
    house = House()
    house.native("m1", "10.0.0.1")
    house.ask(query())
    answer = house.ask(query(more="&event=stopped"))

    assert (answer[b"incomplete"], answer[b"peers"]) == (0, b"")
    assert house.directory.addresses((), 0.0) == ["10.0.0.1"]


def test_a_complete_client_is_a_holder_and_is_told_the_incomplete_peers() -> None:
    """A stock seed behind a firewall could serve nobody."""
    house = House()
    house.native("s1", "10.0.0.1", complete=False)
    house.native("s2", "10.0.0.3", complete=True)
    answer = house.ask(query().replace(b"left=1", b"left=0") + b"&event=completed")

    assert (answer[b"complete"], answer[b"peers"]) == (2, bytes([10, 0, 0, 1]) + (7001).to_bytes(2))


def test_a_silent_client_is_gone_after_two_of_its_periods() -> None:
    """libtorrent announces every 300 s at most: it would be removed while it lives, or stay for
    ever."""
    house = House()
    house.ask(query(), now=0.0)

    assert house.directory.expire(599.0) == []
    assert len(house.directory.expire(601.0)) == 1


@pytest.mark.parametrize(("wanted", "expected"), [("0", 0), ("2", 2), ("1000", 50), ("-1", 50), ("", 50)])
def test_a_client_gets_as_many_as_it_wants_within_the_limit(wanted: str, expected: int) -> None:
    """One query could ask for the whole fleet, or a client that wants no peers would be sent
    fifty."""
    house = House()
    for n in range(60):
        house.native(f"s{n}", f"10.1.0.{n + 1}")
    answer = house.ask(query(more=f"&numwant={wanted}"))

    peers = answer[b"peers"]
    assert isinstance(peers, bytes)
    assert len(peers) == expected * 6


@pytest.mark.parametrize(
    ("asked", "key"),
    [
        (query(), ""),
        (query(), "0" * 32),
        (query(), KEY.upper()),
        (query(), KEY[:-1]),
        (query(), "ключ"),
        (query(), announce_key(SECRET, D2)),
        (query(), announce_key("another cluster", D1)),
        (query(D2), KEY),
        (query(Digest("3" * 64)), announce_key(SECRET, Digest("3" * 64))),
    ],
)
def test_only_a_known_digest_under_its_own_key_is_answered(asked: bytes, key: str) -> None:
    """Our masters would be an open tracker, or one bundle's URL a key to all."""
    house = House()
    answer = house.ask(asked, key=key)

    assert answer == {b"failure reason": b"the request is not understood: no such info_hash under this key"}
    assert house.directory.statistics().memberships == 0


@pytest.mark.parametrize(
    "asked",
    [
        b"",
        b"info_hash",
        query().replace(b"&port=6881", b""),
        query(port=0),
        query(port=65536),
        query().replace(b"port=6881", b"port=x"),
        query().replace(b"port=6881", b"port=" + b"9" * 21),
        query().replace(b"left=1", b"left=1e3"),
        query(peer=b"short"),
        query().replace(b"info_hash=", b"info_hash=x"),
        query() + b"&info_hash=" + b"a" * 20,
        query(more="&x=" + "y" * 5000),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_in_the_protocol(asked: bytes) -> None:
    """A client would see an internal error of ours, or get into the directory with nonsense."""
    house = House()

    assert list(house.ask(asked)) == [b"failure reason"]
    assert house.directory.statistics().memberships == 0


def test_a_query_is_read_as_bytes() -> None:
    """A client may escape the twenty bytes of an info-hash in any way, and some would be
    misread."""
    raw = bytes.fromhex(D1)[:20]
    escaped = "".join(f"%{byte:02X}" for byte in raw)
    said = parse_query(f"info_hash={escaped}&peer_id={'p' * 20}&port=1&event=completed&compact=0&numwant=7".encode())

    assert (said.info_hash, said.peer, said.port, said.left) == (raw, b"p" * 20, 1, None)
    assert (said.event, said.compact, said.wanted) == (AnnounceEvent.COMPLETED, False, 7)


def test_an_event_of_another_release_is_no_failure() -> None:
    """A newer client could not announce at all."""
    assert parse_query(query(more="&event=something")).event is AnnounceEvent.NONE


def test_keys_differ_by_digest_and_by_cluster() -> None:
    """One bundle's URL would open another bundle or another cluster."""
    keys = {announce_key(SECRET, D1), announce_key(SECRET, D2), announce_key("other", D1)}

    assert len(keys) == 3
    assert {len(key) for key in keys} == {32}


@given(st.binary(max_size=200), st.text(max_size=40))
def test_any_bytes_get_an_answer(noise: bytes, key: str) -> None:
    """A hostile query would be a 500, or end the master."""
    house = House()
    for asked in (noise, query() + noise):
        house.ask(asked, key=key)
