"""The peers of a swarm, whoever joins and leaves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole, SwarmEntry
from torrentdist.swarm.directory.roster import Draw, Peer, Roster
from torrentdist.swarm.directory.swarm import Swarm
from torrentdist.swarm.plan.conductor import PlanPlace, Progress
from torrentdist.swarm.plan.neighbours import FULL_MESH, spot_of

DIGEST = Digest("1" * 64)


def peer(number: int, *, port: int = 7000, alive_until: float = 10.0) -> Peer:
    return Peer(PeerId(f"p{number}"), PeerRole.SUPERVISOR, f"10.0.0.{number}", port, 0.0, alive_until=alive_until)


def roster_of(count: int) -> Roster:
    roster = Roster()
    for number in range(count):
        roster.add(peer(number))
    return roster


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=30), st.integers(0, 2**64 - 1))
def test_a_draw_yields_every_peer_that_is_there_once(steps: list[tuple[int, bool]], seed: int) -> None:
    """A peer that left would be handed out, or one that is there never."""
    roster, there = Roster(), set[str]()
    for number, comes in steps:
        one = peer(number)
        if comes:
            roster.add(one)
            there.add(one.id)
        else:
            roster.discard(roster.get(one.id) or one)
            there.discard(one.id)

    assert sorted(there) == sorted(one.id for one in roster.drawn(seed))
    for number in range(7):
        one = peer(number)
        found = roster.get(one.id)
        assert (one.id in there) == (one.id in roster) == (found is not None)
        assert found is None or found.id == one.id
    assert (len(there), True) == (len(roster), roster.has_all({PeerId(name) for name in there}))
    assert not roster.has_all({PeerId("stranger")})


def test_peers_that_ask_with_other_seeds_are_given_others() -> None:
    """All peers would dial the same few."""
    seeds = {0: "01234", 2: "23401", 1 << 32: "13024", (1 << 32) + 6: "24130", 2 << 32: "20314", 4 << 32: "40123"}
    drawn = {seed: "".join(one.id[1:] for one in roster_of(5).drawn(seed)) for seed in seeds}

    assert seeds == drawn
    assert [] == list(Roster().drawn(1))


def test_a_draw_yields_no_address_twice_and_none_that_is_useless() -> None:
    """A peer would dial itself, a peer that is silent, or one that does not listen."""
    peers = [
        peer(1),
        peer(2),
        peer(1),
        peer(3, port=0),
        peer(4, alive_until=4.9),
        peer(5, alive_until=5.0),
        peer(1, port=1),
    ]
    draw = Draw(peer(2), now=5.0)

    def address(number: int, port: int = 7000) -> PeerAddress:
        return PeerAddress(host=f"10.0.0.{number}", port=port, role=PeerRole.SUPERVISOR, complete=True)

    assert [address(1), address(5), address(1, 1)] == list(draw.addresses(peers, complete=True))
    assert [] == list(draw.addresses(peers, complete=True))
    assert 4 == len(list(Draw(None, now=5.0).addresses(peers, complete=False)))


def test_what_a_receiver_had_before_says_nothing_of_its_pace() -> None:
    """A receiver that had most of a bundle would count as the fastest."""
    swarm, one = Swarm(DIGEST), peer(1)
    one.entries[DIGEST] = SwarmEntry(digest=DIGEST, complete=False, done=50, size=100, local=30)
    swarm.others[False].add(one)

    assert Progress(20, 70) == swarm.progress(one.id)


def test_a_receiver_of_many_is_told_of_some_that_are_there() -> None:
    """A peer would dial hosts that are not there, or none that has everything."""
    swarm, expected = Swarm(DIGEST), [PeerId(f"p{number}") for number in range(FULL_MESH + 9)]
    entry = SwarmEntry(digest=DIGEST, complete=False, size=100)
    first, next_, far, absent = (int(sorted(expected, key=spot_of)[place][1:]) for place in (0, 1, 5, 2))
    for number in (first, next_, far):
        one = peer(number)
        one.entries[DIGEST] = entry
        swarm.others[False].add(one)
    swarm.others[True].add(peer(70))
    swarm.masters[True].add(peer(80))
    swarm.crowds.of("").expect(expected, swarm.others[True].__contains__)

    def near(number: int) -> set[tuple[str, bool]] | None:
        asker = swarm.others[False].get(PeerId(f"p{number}")) or peer(number)
        found = swarm.near(asker, Draw(asker, 1.0), 0, 1.0)
        return None if found is None else {(one.host, one.complete) for one in found}

    assert {(f"10.0.0.{next_}", False), ("10.0.0.70", True), ("10.0.0.80", True)} == near(first)
    assert near(absent) is None


def test_a_peer_that_leaves_is_listed_no_more_and_frees_its_place() -> None:
    """If this fails, others dial a peer that has left, or its pieces wait for it."""
    swarm, peers = Swarm(DIGEST), [peer(number) for number in range(4)]
    for one in peers:
        swarm.enter(one, complete=one is peers[3])
    swarm.leave(peers[1])
    swarm.leave(peers[3])

    assert [0, 2] == [swarm.count(complete=True), swarm.count(complete=False)]
    assert [PlanPlace(0, 2), None, PlanPlace(1, 2)] == [swarm.crowds.of("").place(PeerId(f"p{n}")) for n in range(3)]


def test_a_peer_is_complete_or_a_receiver_and_never_both() -> None:
    """If this fails, a host that is done keeps a share of the pieces, or one that lost a file gets
    none."""
    swarm, said = Swarm(DIGEST), []
    one = peer(0)
    for complete in (False, True, False):
        swarm.enter(one, complete=complete)
        said.append((swarm.count(complete=True), swarm.count(complete=False), swarm.is_receiver(one.id)))

    assert [(0, 1, True), (1, 0, False), (0, 1, True)] == said


def test_a_master_that_lacks_something_is_a_receiver() -> None:
    """If this fails, masters fetch an upload without a plan, and its pieces are sent twice."""
    swarm, one = Swarm(DIGEST), peer(0)
    one.role = PeerRole.MASTER
    swarm.enter(one, complete=False)

    assert [True, False] == [swarm.is_receiver(one.id), swarm.is_receiver(PeerId("stranger"))]
