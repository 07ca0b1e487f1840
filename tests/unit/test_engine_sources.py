"""The accounts of where bytes came from, without any connection."""

from __future__ import annotations

from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole
from torrentdist.model.wire.transfer_messages import Sources
from torrentdist.swarm.engine.traffic import SeenPeer, SourceLedger, own_hosts

MASTER = PeerAddress(host="10.0.0.1", port=7000, role=PeerRole.MASTER)
SUPERVISOR = PeerAddress(host="10.0.0.2", port=7000, role=PeerRole.SUPERVISOR)
NEIGHBOUR = PeerAddress(host="10.0.0.1", port=7001, role=PeerRole.SUPERVISOR)


def dialled(peer: PeerAddress, received: int) -> SeenPeer:
    return SeenPeer((peer.host, peer.port), peer.port, received)


def ledger(*peers: PeerAddress) -> SourceLedger:
    made = SourceLedger()
    made.learn(peers)
    return made


def test_counters_are_only_a_proportion() -> None:
    """If this failed, bytes fetched twice would make the sources more than the bundle."""
    books = ledger(MASTER, SUPERVISOR)
    books.record([dialled(MASTER, 300), dialled(SUPERVISOR, 100)])

    assert Sources(masters=150, peers=50, local=10) == books.sources(here=210, local=10)


def test_a_peer_that_has_left_still_counts() -> None:
    """If this failed, a master that restarts in the middle would be said to have sent nothing."""
    books = ledger(MASTER, SUPERVISOR)
    books.record([dialled(MASTER, 300)])
    books.record([dialled(SUPERVISOR, 100)])

    assert Sources(masters=300, peers=100) == books.sources(here=400, local=0)


def test_a_connection_that_begins_again_adds_up() -> None:
    """If this failed, bytes that a peer sent before it reconnected would be forgotten."""
    books = ledger(MASTER, SUPERVISOR)
    books.record([dialled(MASTER, 200), dialled(SUPERVISOR, 300)])
    books.record([dialled(MASTER, 100)])

    assert Sources(masters=300, peers=300) == books.sources(here=600, local=0)


def test_an_incoming_connection_is_known_by_the_port_that_it_tells() -> None:
    """If this failed, a master and a supervisor on one host would be mixed up."""
    books = ledger(MASTER, NEIGHBOUR)
    books.record([SeenPeer((MASTER.host, 50000), MASTER.port, 1), SeenPeer((MASTER.host, 50001), NEIGHBOUR.port, 2)])

    assert Sources(masters=1, peers=2) == books.sources(here=3, local=0)


def test_a_silent_peer_is_known_by_its_host_if_all_there_are_alike() -> None:
    """If this failed, a client that does not tell its port would never be counted in its role."""
    silent = SeenPeer((MASTER.host, 50000), None, 5)
    alone, mixed = ledger(MASTER, SUPERVISOR), ledger(MASTER, NEIGHBOUR)

    assert (PeerRole.MASTER, None) == (alone.role_of(silent), mixed.role_of(silent))


def test_roles_may_be_learned_late() -> None:
    """If this failed, bytes that came before the directory's first answer would have no source."""
    books = SourceLedger()
    books.record([dialled(MASTER, 7)])
    books.learn([MASTER])

    assert Sources(masters=7) == books.sources(here=7, local=0)


def test_nothing_seen_is_counted_as_peers() -> None:
    """If this failed, the sources of a bundle that arrived before the first look would not add up
    to its size."""
    assert Sources(peers=9, local=1) == ledger().sources(here=10, local=1)


def test_whoever_shares_an_address_with_a_stock_client_is_not_parted_from() -> None:
    """No peer dials a stock client, so it would be away for a minute."""
    ours, beside, stock = (
        SeenPeer(("10.0.0.1", 40001), 7061, 0),
        SeenPeer(("10.0.0.2", 40002), 7061, 0),
        SeenPeer(("10.0.0.2", 40003), None, 0, 1),
    )
    new = SeenPeer(("10.0.0.1", 40004), None, 0)

    assert own_hosts([ours, beside], [ours, beside, stock, new]) == {"10.0.0.1"}


def test_a_stock_client_that_has_got_nothing_yet_is_none_of_ours() -> None:
    """Its connection would be cut, and it would wait for a minute before it dials again."""
    assert own_hosts([SeenPeer(("10.0.0.3", 5), None, 0, 0)], []) == set()
