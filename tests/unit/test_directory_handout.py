"""The peers that the directory hands out: their mix, the spread of load, and the peers that are
left out."""

from __future__ import annotations

from collections import Counter

from announced_peers import D1, announce, has, hosts_of, lacks
from msgspec.structs import replace
from records_of import bundle, snapshot

from torrentdist.master.swarm.swarm_records import SwarmRecords
from torrentdist.model.ids import PeerId
from torrentdist.model.policies.bundle_terms import BundleTerms
from torrentdist.model.policies.distribution_record import DistributionRecord
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce
from torrentdist.swarm.directory.directory import Limits, SwarmDirectory


def host(number: int) -> str:
    return f"10.1.{number // 250}.{number % 250 + 1}"


def crowd(holders: int = 0, fetching: int = 0, masters: int = 0, limit: int = 50) -> SwarmDirectory:
    here = SwarmDirectory(limits=Limits(handout=limit))
    for n in range(masters):
        announce(here, f"m{n}", has(), source=host(n), role=PeerRole.MASTER)
    for n in range(masters, masters + holders):
        announce(here, f"h{n}", has(), source=host(n))
    for n in range(masters + holders, masters + holders + fetching):
        announce(here, f"f{n}", lacks(), source=host(n))
    return here


def test_nobody_is_handed_out_to_itself() -> None:
    """A peer would dial itself, by its id or, after a restart under another id, by its old
    address."""
    here = SwarmDirectory()
    announce(here, "old-me", has(), source="10.0.0.1", port=7000)
    answer = announce(here, "me", lacks(), source="10.0.0.1", port=7000)

    assert answer.swarms[D1].peers == []
    assert announce(here, "me", lacks(), source="10.0.0.1", port=7000, now=1.0).swarms[D1].peers == []


def test_two_peers_on_one_host_find_each_other() -> None:
    """Masters and supervisors that share a host would never exchange a byte."""
    here = SwarmDirectory()
    announce(here, "m1", has(), source="10.0.0.1", port=7001)

    assert {"10.0.0.1"} == hosts_of(announce(here, "s1", lacks(), source="10.0.0.1", port=7002).swarms[D1].peers)


def test_one_address_is_handed_out_once() -> None:
    """Places would be wasted on earlier lives of one process."""
    here = SwarmDirectory()
    for life in range(5):
        announce(here, f"client-{life}", lacks(), source="10.0.0.1", port=7000)

    assert len(announce(here, "s1", lacks(), source="10.0.0.2").swarms[D1].peers) == 1


def test_a_peer_that_does_not_listen_is_not_handed_out() -> None:
    """Others would dial port 0."""
    here = SwarmDirectory()
    announce(here, "s1", has(), source="10.0.0.1", port=0)

    assert announce(here, "s2", lacks(), source="10.0.0.2").swarms[D1].peers == []
    assert here.counts(D1) == (1, 1)


def test_at_most_the_limit_is_handed_out_and_the_limit_is_used() -> None:
    """An answer would grow with the fleet, or leave a peer with few to ask."""
    for shape in ((0, 7, 60), (200, 0, 0), (0, 0, 200), (60, 7, 3), (200, 1, 1)):
        holders, fetching, masters = shape
        here = crowd(holders, fetching, masters)

        assert len(announce(here, "me", lacks(), source="10.2.0.1").swarms[D1].peers) == 50, shape


def test_a_fetching_peer_gets_a_mix() -> None:
    """All peers would depend on the masters, or none would hear of a holder. Kraken's slots fill up
    with empty peers."""
    here = crowd(holders=100, fetching=7, masters=40)
    peers = announce(here, "me", lacks(), source="10.2.0.1").swarms[D1].peers
    kinds = Counter((peer.role, peer.complete) for peer in peers)

    assert kinds[PeerRole.MASTER, True] == 12
    assert kinds[PeerRole.SUPERVISOR, True] == 31
    assert kinds[PeerRole.SUPERVISOR, False] == 7


def test_one_of_many_receivers_gets_its_neighbours_and_the_first_ones_get_holders() -> None:
    """A holder would serve a thousand peers at a time, and every host would be connected to every
    other."""
    here = crowd(holders=20, fetching=400, masters=3)
    announce(here, "z", lacks(), source="10.2.0.2")
    first = announce(here, "f23", lacks(), source=host(23), now=1.0).swarms[D1].peers
    last = announce(here, "z", lacks(), source="10.2.0.2", now=1.0).swarms[D1].peers

    assert 3 == sum(peer.role is PeerRole.MASTER for peer in first)
    assert 0 == sum(peer.role is PeerRole.MASTER for peer in last)
    assert 10 == sum(not peer.complete for peer in last)
    assert 8 == sum(peer.complete for peer in last)


def test_receivers_that_keep_below_a_rate_have_more_neighbours() -> None:
    """The bundle would leave the holder faster than the receivers pass it on."""
    here, etl = SwarmDirectory(), bundle("etl")
    digest = etl.record.digest
    for n in range(23):
        announce(here, f"f{n}", lacks(digest), source=host(n))
    request = SwarmAnnounce(peer=PeerId("me"), role=PeerRole.SUPERVISOR, port=7000, host="", swarms=[lacks(digest)])

    def receivers(rate: int) -> int:
        order = DistributionRecord(bundle=etl.record.id, terms=BundleTerms(rate=rate))
        records = SwarmRecords(here, lambda: snapshot([etl], distributions=[order]))
        records.follow()
        answer = here.announce(request, source_host="10.2.0.1", now=0.0, facts=records.facts_of)
        return sum(peer.role is PeerRole.SUPERVISOR for peer in answer.swarms[digest].peers)

    assert [8, 23, 8] == [receivers(rate) for rate in (0, 1_000_000, 0)]


def test_a_receiver_that_waits_for_long_gets_holders_whatever_its_place() -> None:
    """A host whose neighbours all stall would never finish."""
    here = crowd(fetching=400, masters=3)
    announce(here, "z", lacks(), source="10.2.0.2")
    alike = announce(here, "z", lacks(), source="10.2.0.2", now=4.0).swarms[D1].peers
    for number in range(3, 403):
        announce(here, f"f{number}", replace(lacks(), done=500, size=1000), source=host(number), now=4.5)
    later = announce(here, "z", lacks(), source="10.2.0.2", now=5.0).swarms[D1].peers

    assert [0, 3] == [sum(peer.role is PeerRole.MASTER for peer in told) for told in (alike, later)]


def test_every_master_of_a_small_cluster_is_handed_out() -> None:
    """With three masters, a crowd of peers would hide the reliable sources."""
    here = crowd(holders=300, fetching=7, masters=3)
    peers = announce(here, "me", lacks(), source="10.2.0.1").swarms[D1].peers

    assert sum(peer.role is PeerRole.MASTER for peer in peers) == 3


def test_load_spreads_over_the_peers() -> None:
    """Every peer would be sent to the same few, whose uplinks then carry everything."""
    here = crowd(holders=200, fetching=0)
    given = Counter(
        peer.host
        for n in range(400)
        for peer in announce(here, f"asker-{n}", lacks(), source="10.2.0.1", port=n + 1).swarms[D1].peers
        if peer.complete
    )
    mean = sum(given.values()) / 200

    assert len(given) == 200
    assert max(given.values()) < 2 * mean


def test_the_choice_is_stable_for_a_while_and_changes_then() -> None:
    """A peer would see other peers at every announce, or never leave a bad choice."""
    here = crowd(holders=500)
    announce(here, "me", lacks(), source="10.2.0.1")
    first, same, later = (here.handout(D1, PeerId("me"), now=now) for now in (0.0, 10.0, 25.0))
    for n in range(500):
        announce(here, f"h{n}", has(), source=host(n), now=70.0)
    rotated = here.handout(D1, PeerId("me"), now=70.0)

    assert hosts_of(first) == hosts_of(same) == hosts_of(later)
    assert len(hosts_of(first) & hosts_of(rotated)) < 25


def test_a_complete_peer_waits_to_be_dialled() -> None:
    """Both sides would dial at once, and a thousand idle seeders would get fifty addresses each
    every few seconds."""
    here = crowd(fetching=10)

    assert announce(here, "me", has(), source="10.2.0.1").swarms[D1].peers == []


def test_an_uploading_client_dials_the_masters_that_lack_its_bundle() -> None:
    """An uploader that no host can dial could never send its bundle."""
    here = crowd(fetching=10)
    announce(here, "m1", lacks(), source="10.0.0.1", role=PeerRole.MASTER)
    announce(here, "m2", has(), source="10.0.0.2", role=PeerRole.MASTER)
    answer = announce(here, "uploader", has(), source="10.2.0.1", role=PeerRole.CLIENT)

    assert {"10.0.0.1"} == hosts_of(answer.swarms[D1].peers)


def test_a_role_that_changes_moves_the_peer() -> None:
    """The peer would be listed twice, once under each role."""
    here = SwarmDirectory()
    announce(here, "x", has(), source="10.0.0.1", role=PeerRole.MASTER)
    announce(here, "x", has(), source="10.0.0.1", role=PeerRole.SUPERVISOR)
    peers = announce(here, "s2", lacks(), source="10.0.0.2").swarms[D1].peers

    assert [peer.role for peer in peers] == [PeerRole.SUPERVISOR]
    assert here.counts(D1) == (1, 1)
