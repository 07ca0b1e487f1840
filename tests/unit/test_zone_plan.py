"""Which hosts of a zone fetch what across its border."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_of import snapshot, supervisor

from bench.scale.simulation import World, crowd
from torrentdist.master.swarm.zones import Zones
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmAnswer, SwarmEntry
from torrentdist.supervisor.border.piece_frames import lacking_pieces, lacking_text, packed, unpacked
from torrentdist.swarm.directory.directory import SwarmDirectory
from torrentdist.swarm.directory.directory_values import SwarmFacts
from torrentdist.swarm.plan.border import ENOUGH, FLOWS, feeders, first_places, flows_of, pieces_of, source_of
from torrentdist.swarm.plan.zoned_crowds import OPEN_SECS

DIGEST = Digest("d" * 64)
SIZE = 100


def test_a_place_is_a_zone_or_a_rack_of_one() -> None:
    """If this fails, hosts without a rack count as a place beside their zone's masters, or racks of
    hosts in no zone as a zone: a bundle crosses borders more often than it has to."""
    hosts = {"h1": {"zone": "east", "rack": "r1"}, "h2": {"zone": "east"}, "h3": {"rack": "r1"}, "h4": {}}
    seen = snapshot(supervisors=[supervisor(id_, **labels) for id_, labels in hosts.items()])
    by_label, by_table = (Zones(networks, lambda: seen) for networks in ({}, {"127.0.0.0/8": "west"}))

    assert ["east/r1", "east", "", ""] == [by_label.place(PeerId(id_)) for id_ in hosts]
    assert ["east/r1", "east", "west/r1", "west"] == [by_table.place(PeerId(id_)) for id_ in hosts]


@given(st.integers(min_value=1, max_value=100))
def test_each_flow_of_a_zone_has_one_receiver(receivers: int) -> None:
    """Pieces without one would come in only when the border opens; pieces with two come in
    twice."""
    flows = [flow for number in range(receivers) for flow in flows_of(number, receivers)]

    assert sorted(flows) == list(range(FLOWS))


@given(st.integers(min_value=0, max_value=300))
def test_each_piece_is_in_one_flow(pieces: int) -> None:
    assert sorted(piece for flow in range(FLOWS) for piece in pieces_of(flow, pieces)) == list(range(pieces))


def test_sources_give_about_as_much_each_and_another_attempt_goes_to_another() -> None:
    """One host would carry a zone alone, or be asked for ever although it hangs."""
    sources = [f"s{number}" for number in range(12)]
    asked = [source_of(flow, "west", sources) for flow in range(FLOWS)]

    assert {asked.count(source) for source in sources} == {2}
    assert source_of(3, "west", sources, attempt=1) != source_of(3, "west", sources)
    assert source_of(3, "west", [], attempt=1) is None


@pytest.mark.parametrize(
    ("receivers", "complete", "holders", "expected"),
    [
        ({"a": 9, "b": 8}, {}, {"a": 1}, {"a"}),
        ({"a": 9, "b": 8}, {}, {}, {"a"}),
        ({"a": 9, "b": 8}, {}, {"c": 3}, {"a"}),
        ({"b": 8, "c": 9}, {"a": ENOUGH}, {}, {"a"}),
        ({"b": 8, "c": 9}, {"a": 1}, {}, {"a", "c"}),
        ({"b": 2}, {"a": 2}, {}, {"a"}),
        ({"a": 9, "b": 9}, {}, {"a": 1, "b": 1}, {"a", "b"}),
        ({}, {}, {"a": 1}, set()),
    ],
)
def test_the_home_of_a_bundle_is_where_hosts_can_give_it(
    receivers: dict[str, int], complete: dict[str, int], holders: dict[str, int], expected: set[str]
) -> None:
    """Zones would wait for a zone that has nobody who gives, or for a single host."""
    assert first_places(receivers, complete, holders) == expected


@given(st.lists(st.booleans(), max_size=200), st.integers(min_value=0, max_value=FLOWS - 1))
def test_what_a_host_lacks_is_told_exactly(have: list[bool], flow: int) -> None:
    text = lacking_text(flow, have)
    told = lacking_pieces(flow, text, len(have)) if text else []

    assert told == [piece for piece in pieces_of(flow, len(have)) if not have[piece]]


@pytest.mark.parametrize("text", ["", "x", "-1", "1" * 40])
def test_what_no_flow_has_is_refused(text: str) -> None:
    with pytest.raises(TorrentdistError, match="lacks"):
        lacking_pieces(1, text, 60)


@given(st.lists(st.tuples(st.integers(min_value=0, max_value=2**32 - 1), st.binary(max_size=50)), max_size=5))
def test_pieces_come_out_as_they_went_in(pieces: list[tuple[int, bytes]]) -> None:
    body = packed(pieces)

    assert list(unpacked(body)) == pieces


def test_a_piece_that_is_cut_off_is_refused() -> None:
    body = packed([(1, b"abc"), (2, b"defg")])

    for end in range(1, len(body)):
        if end != len(packed([(1, b"abc")])):
            with pytest.raises(TorrentdistError, match="cut off"):
                list(unpacked(body[:end]))


def number_of(name: str) -> int:
    """Returns a number of its own for each host of these tests."""
    return 250 if name == "master" else (ord(name[0]) - ord("a")) * 10 + int(name[1:])


class Cluster:
    """A directory, and hosts in zones by the first letter of their ids."""

    def __init__(self, *expected: str) -> None:
        self.directory = SwarmDirectory(place_of=lambda peer: peer[0] if peer[0] in "abc" else "")
        self.expected = tuple(PeerId(name) for name in expected)
        self.now = 0.0

    def says(self, name: str, done: int = 0, role: PeerRole = PeerRole.SUPERVISOR) -> SwarmAnswer:
        entry = SwarmEntry(digest=DIGEST, complete=done == SIZE, done=done, size=SIZE)
        number = number_of(name)
        said = SwarmAnnounce(peer=PeerId(name), role=role, port=9000 + number, host=f"10.0.0.{number}", swarms=[entry])
        facts = SwarmFacts(expected=self.expected)
        return self.directory.announce(said, source_host=said.host, now=self.now, facts=lambda _: facts)

    def ports(self, answer: SwarmAnswer) -> set[int]:
        return {peer.port - 9000 for peer in answer.swarms[DIGEST].peers}

    def numbers(self, *names: str) -> set[int]:
        return {number_of(name) for name in names}


def zoned() -> Cluster:
    """Two hosts in each of two zones, and a master in no zone that has everything."""
    cluster = Cluster("a1", "a2", "a3", "b1", "b2")
    cluster.says("master", SIZE, PeerRole.MASTER)
    for name in cluster.expected:
        cluster.says(name)
    return cluster


def test_hosts_of_another_zone_are_named_to_nobody() -> None:
    """Each host would fetch most of the bundle from other zones."""
    cluster = zoned()
    home, abroad = cluster.says("a1"), cluster.says("b1")

    assert cluster.ports(home) == cluster.numbers("a2", "a3", "master")
    assert cluster.ports(abroad) == cluster.numbers("b2")
    assert home.swarms[DIGEST].flows == []
    assert abroad.swarms[DIGEST].flows == flows_of(0, 2)
    assert cluster.says("b2").swarms[DIGEST].flows == flows_of(1, 2)


def test_a_flow_comes_from_a_host_at_home() -> None:
    cluster = zoned()
    source = cluster.directory.source(DIGEST, 0, PeerId("b1"), attempt=0, able=lambda peer: True)
    another = cluster.directory.source(DIGEST, 0, PeerId("b1"), attempt=1, able=lambda peer: True)

    assert source is not None
    assert another is not None
    assert {source[0], another[0]} == {"a"}
    assert source != another
    assert cluster.directory.source(DIGEST, 0, PeerId("b1"), attempt=0, able=lambda peer: False) is None


@pytest.mark.parametrize("role", [PeerRole.CLIENT, PeerRole.STOCK])
def test_clients_that_have_everything_are_no_zone(role: PeerRole) -> None:
    """A few people who seed would be the zone from which all others fetch, although no host can
    fetch from them: nothing would come for five seconds, and then everything to each host from
    elsewhere."""
    cluster = zoned()
    for number in range(ENOUGH):
        cluster.says(f"d{number}", SIZE, role)
    home, abroad = cluster.says("a1"), cluster.says("b1")

    assert cluster.ports(home) == cluster.numbers("a2", "a3", "master")
    assert abroad.swarms[DIGEST].flows == flows_of(0, 2)
    source = cluster.directory.source(DIGEST, 0, PeerId("b1"), attempt=0, able=cluster.expected.__contains__)
    assert source in ("a1", "a2", "a3")


def test_a_zone_needs_no_flow_once_a_host_has_everything() -> None:
    """What is there would come in again."""
    cluster = zoned()
    cluster.says("b1", SIZE)
    told = cluster.says("b2")

    assert told.swarms[DIGEST].flows == []
    assert cluster.numbers("b1") <= cluster.ports(told)


def test_a_zone_that_gets_nothing_is_opened_until_it_is_done() -> None:
    """It would wait for hosts that hang, although others have the bundle."""
    cluster = zoned()
    cluster.now = OPEN_SECS + 0.1
    cluster.says("master", SIZE, PeerRole.MASTER)
    opened = cluster.says("b1")
    cluster.now += 0.5
    moving = cluster.says("b1", done=10)

    assert cluster.numbers("master") <= cluster.ports(opened)
    assert cluster.numbers("master") <= cluster.ports(moving)
    cluster.says("b1", SIZE)
    cluster.says("b2", SIZE)


def test_a_zone_that_gets_something_stays_closed() -> None:
    cluster = zoned()
    for step in range(4):
        cluster.now += OPEN_SECS - 1
        cluster.says("a1", done=step)
        cluster.says("b2", done=step + 1)
        told = cluster.says("b1", done=0)

    assert cluster.ports(told) == cluster.numbers("b2")


def test_a_single_host_of_a_zone_fetches_like_any_other() -> None:
    """It needs one copy in any case, and takes it from many."""
    cluster = Cluster("a1", "a2", "a3", "b1")
    cluster.says("master", SIZE, PeerRole.MASTER)
    for name in cluster.expected:
        cluster.says(name)
    told = cluster.says("b1")

    assert told.swarms[DIGEST].flows == []
    assert cluster.ports(told) == cluster.numbers("a1", "a2", "a3", "master")


def test_without_zones_nothing_changes() -> None:
    cluster = Cluster("x1", "x2", "y1", "y2")
    cluster.says("master", SIZE, PeerRole.MASTER)
    for name in cluster.expected:
        cluster.says(name)
    told = cluster.says("x1")

    assert cluster.ports(told) == cluster.numbers("x2", "y1", "y2", "master")
    assert told.swarms[DIGEST].flows == []


def test_a_peer_of_another_zone_is_told_as_such() -> None:
    """What comes from it counts as bytes between zones."""
    cluster = Cluster("a1", "a2", "b1")
    cluster.says("a1")
    cluster.says("a2")
    told = cluster.says("b1")

    assert {peer.outside for peer in told.swarms[DIGEST].peers} == {True}
    assert {
        peer.outside for peer in cluster.says("a1").swarms[DIGEST].peers if peer.port - 9000 in cluster.numbers("a2")
    } == {False}


@pytest.mark.parametrize("holder_zone", ["a", ""])
def test_in_a_simulated_broadcast_each_zone_takes_one_copy_and_hardly_longer(holder_zone: str) -> None:
    """A zone would take many copies, or wait for its border."""
    blind = World(384, crowd(24))
    assert blind.run(limit=2000)
    world = World(384, crowd(24, ("a", "b", "c")), holder_zone=holder_zone)
    assert world.run(limit=2000)
    into = {zone: sum(r.outside for r in world.receivers if r.zone == zone) / 384 for zone in "abc"}

    assert world.tick <= 1.15 * blind.tick
    assert max(into.values()) <= 1.15
    assert sum(into.values()) >= 2


def test_in_a_simulated_broadcast_each_rack_takes_one_copy_and_each_zone_too() -> None:
    """Each rack would fetch its copy from another zone."""
    places = ("a/1", "a/2", "b/1", "b/2", "b/3")
    world = World(256, crowd(40, places), holder_zone="a/1")
    assert world.run(limit=2000)
    abroad = sum(receiver.outside for receiver in world.receivers) / 256
    into = {place: sum(r.elsewhere for r in world.receivers if r.zone == place) / 256 for place in places}

    assert 1 <= abroad <= 1.15
    assert into["a/1"] == 0
    assert all(1 <= copies <= 1.15 for place, copies in into.items() if place != "a/1")


@pytest.mark.parametrize(
    ("place", "receivers", "complete", "holders", "expected"),
    [
        ("a", {"a": 9, "b": 9}, {}, {"a": 1}, set()),
        ("b", {"a": 9, "b": 9}, {}, {"a": 1}, {"a"}),
        ("a/2", {"a/1": 9, "a/2": 9}, {}, {"a/1": 1}, {"a/1"}),
        ("a/1", {"a/1": 9, "a/2": 9}, {}, {"a/1": 1}, set()),
        ("b/1", {"a/1": 9, "a/2": 9, "b/1": 8, "b/2": 7}, {}, {"a/2": 1}, {"a/2"}),
        ("b/2", {"a/1": 9, "a/2": 9, "b/1": 8, "b/2": 7}, {}, {"a/2": 1}, {"b/1"}),
        ("a/1", {"a/1": 9, "a/2": 9, "b/1": 8, "b/2": 7}, {}, {"a/2": 1}, {"a/2"}),
        ("b/2", {"a": 9, "b/1": 8, "b/2": 7}, {"b/1": ENOUGH}, {"a": 1}, {"b/1"}),
    ],
)
def test_a_rack_fetches_from_its_zone_and_one_rack_of_the_zone_from_others(
    place: str, receivers: dict[str, int], complete: dict[str, int], holders: dict[str, int], expected: set[str]
) -> None:
    """A zone would take a copy for each of its racks, or racks would wait for each other."""
    assert feeders(place, receivers, complete, holders) == expected


@given(
    st.dictionaries(st.sampled_from(["a", "b", "a/1", "a/2", "b/1", "c/1"]), st.integers(1, 20), min_size=1),
    st.dictionaries(st.sampled_from(["a", "a/1", "b/1", "c/1"]), st.integers(1, 20)),
    st.dictionaries(st.sampled_from(["", "a", "a/2", "b/1", "d"]), st.integers(1, 3)),
)
def test_every_place_is_fed_in_the_end(
    receivers: dict[str, int], complete: dict[str, int], holders: dict[str, int]
) -> None:
    """Places that feed each other in a circle would all wait for ever."""
    for place in receivers:
        seen: set[str] = set()
        asking = {place}
        while asking:
            assert not asking & seen
            seen |= asking
            lacking = [one for one in asking if not complete.get(one)]
            asking = set().union(*(feeders(one, receivers, complete, holders) for one in lacking))


def test_a_plan_names_nobody_who_has_left() -> None:
    """Flows of a host that died would come from nowhere."""
    cluster = zoned()
    cluster.directory.forget(PeerId("b1"))
    cluster.expected = ("a1", "a2", "a3", "b2", "b3")  # type: ignore[assignment]
    cluster.says("b3")
    told = [cluster.says(name).swarms[DIGEST].flows for name in ("b2", "b3")]

    assert sorted(flow for flows in told for flow in flows) == list(range(FLOWS))
