"""The peers of a swarm, whoever joins and leaves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from torrentdist.model.ids import PeerId
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole
from torrentdist.swarm.directory.roster import Draw, Peer, Roster


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
