"""The directory trusts a peer for some time, and tells peers about each other."""

from __future__ import annotations

import dataclasses
from collections import Counter

import msgspec
import pytest
from announced_peers import D1, D2, announce, has, hosts_of, lacks

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import PeerId
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole, SwarmAnnounce, SwarmPeers
from torrentdist.swarm.directory.directory import Periods, SwarmDirectory, SwarmFacts

PERIODS = Periods(fetching_secs=1.0, seeding_secs=10.0, grace_secs=0.5)


def directory(own_host: str = "") -> SwarmDirectory:
    return SwarmDirectory(own_host=own_host, periods=PERIODS)


def test_a_fetching_peer_is_told_of_a_holder() -> None:
    """No peer would find another."""
    here = directory()
    announce(here, "m1", has(), source="10.0.0.1", role=PeerRole.MASTER, port=7001)

    answer = announce(here, "s1", lacks(), source="10.0.0.2")

    expected = [PeerAddress(host="10.0.0.1", port=7001, role=PeerRole.MASTER, complete=True)]
    assert expected == answer.swarms[D1].peers
    assert answer.you == "10.0.0.2"
    assert {"10.0.0.1", "10.0.0.2"} == set(answer.addresses)


def test_a_swarm_that_is_not_named_any_more_is_left() -> None:
    """Peers would dial a host that dropped the bundle."""
    here = directory()
    announce(here, "s1", has(D1), has(D2), source="10.0.0.1")
    announce(here, "s1", has(D2), source="10.0.0.1")

    assert announce(here, "s2", lacks(D1), source="10.0.0.2").swarms[D1].peers == []
    assert {"10.0.0.1"} == hosts_of(announce(here, "s2", lacks(D2), source="10.0.0.2").swarms[D2].peers)


@pytest.mark.parametrize(
    ("role", "told"), [(PeerRole.SUPERVISOR, SwarmPeers(replicas=2, removed=True)), (PeerRole.CLIENT, None)]
)
def test_a_host_hears_of_what_it_has_without_being_in_its_swarm(role: PeerRole, told: SwarmPeers | None) -> None:
    """A host would never drop what it does not seed, or others would dial it in vain."""
    here = directory()
    said = SwarmAnnounce(peer=PeerId("s1"), role=role, port=1, stored=[D1])
    answer = here.announce(
        said, source_host="10.0.0.1", now=0.0, facts=lambda digest: SwarmFacts(replicas=2, removed=True)
    )

    assert told == answer.swarms.get(D1)
    assert [] == here.members(D1)


def test_a_peer_that_says_goodbye_is_forgotten() -> None:
    """Peers would dial a process that has ended, for two periods."""
    here = directory()
    announce(here, "s1", has(), source="10.0.0.1")
    goodbye = SwarmAnnounce(peer=PeerId("s1"), role=PeerRole.SUPERVISOR, port=0, left=True)
    here.announce(goodbye, source_host="10.0.0.1", now=1.0)

    assert announce(here, "s2", lacks(), source="10.0.0.2").swarms[D1].peers == []
    assert here.addresses((), 0.0) == ["10.0.0.2"]


def test_a_peer_without_room_is_known_until_it_has_room_or_leaves() -> None:
    """An operator would hear of a full disk only when a fetch fails, or hear of it for ever."""
    here = directory()
    said = SwarmAnnounce(peer=PeerId("s1"), role=PeerRole.SUPERVISOR, port=1, full="its disk is full")
    older = SwarmAnnounce(peer=PeerId("s2"), role=PeerRole.SUPERVISOR, port=2)
    for announced in (said, older):
        here.announce(announced, source_host="10.0.0.1", now=0.0)
    full, before = dict(here.conditions.full), here.revisions.states
    here.announce(said, source_host="10.0.0.1", now=1.0)
    again = here.revisions.states
    here.announce(msgspec.structs.replace(said, full=""), source_host="10.0.0.1", now=2.0)
    emptied, after = dict(here.conditions.full), here.revisions.states
    here.announce(said, source_host="10.0.0.1", now=3.0)
    here.expire(1000.0)

    assert {PeerId("s1"): "its disk is full"} == full
    assert ({}, {}) == (emptied, here.conditions.full)
    assert before == again < after


def test_a_goodbye_of_somebody_unknown_is_no_error() -> None:
    """A peer that ends after its master was restarted would see a failure."""
    here = directory()
    goodbye = SwarmAnnounce(peer=PeerId("s1"), role=PeerRole.CLIENT, port=0, left=True)

    assert here.announce(goodbye, source_host="10.0.0.1", now=1.0).swarms == {}


@pytest.mark.parametrize(
    ("said", "source", "own", "expected"),
    [
        ("", "10.0.0.2", "", "10.0.0.2"),
        ("10.9.9.9", "10.0.0.2", "", "10.9.9.9"),
        ("", "127.0.0.1", "", "127.0.0.1"),
        ("", "127.0.0.1", "10.0.0.1", "10.0.0.1"),
        ("127.0.0.1", "127.0.0.1", "10.0.0.1", "10.0.0.1"),
        ("127.0.0.1", "10.0.0.2", "10.0.0.1", "10.0.0.2"),
        ("127.0.0.5", "127.0.0.1", "127.0.0.1", "127.0.0.5"),
        ("", "::1", "fd00::7", "fd00::7"),
        ("", "::ffff:10.0.0.2", "", "10.0.0.2"),
        ("", "127.0.0.1", "master-1.example", "127.0.0.1"),
        ("FD00:0::1", "10.0.0.2", "", "fd00::1"),
    ],
)
def test_a_peer_is_known_by_an_address_that_others_can_dial(said: str, source: str, own: str, expected: str) -> None:
    """Peers on a master's host would be handed out as 127.0.0.1 to the whole cluster."""
    answer = announce(directory(own), "s1", lacks(), host=said, source=source)

    assert expected == answer.you


@pytest.mark.parametrize("host", ["h10", "0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "fe80::1%eth0", "10.0.0.1/8"])
def test_what_nobody_can_dial_is_refused(host: str) -> None:
    """A name or a broadcast address would get into every peer's filter and engine."""
    here = directory()

    with pytest.raises(TorrentdistError) as caught:
        announce(here, "s1", has(), host=host)

    assert caught.value.code == "invalid_request"
    assert here.statistics().refused == 1
    assert here.addresses((), 0.0) == []


def test_the_period_is_short_only_while_something_is_being_fetched() -> None:
    """A fleet of idle seeders would come every second, or a fetching peer hear of others too
    late."""
    here = directory()

    announce(here, "s1", has(D1), lacks(D2))
    fetching = announce(here, "s1", has(D1), lacks(D2), now=2.0)
    seeding = announce(here, "s1", has(D1), has(D2), now=2.0)

    assert fetching.interval == 1.0
    assert 8.0 <= seeding.interval <= 10.0


def test_a_receiver_that_comes_with_unexpected_others_comes_again_soon() -> None:
    """If this failed, the first of many downloads would follow no plan, or an old one, for a
    second."""
    here = directory()
    newcomer = announce(here, "c1", lacks(D1))
    told = here.announce(
        SwarmAnnounce(peer=PeerId("s1"), role=PeerRole.SUPERVISOR, port=7000, swarms=[lacks(D1)]),
        source_host="10.0.0.2",
        now=1.0,
        facts=lambda _: SwarmFacts(expected=(PeerId("s1"),)),
    )
    master = announce(here, "m1", lacks(D1), role=PeerRole.MASTER, source="10.0.0.3", now=1.0)

    assert newcomer.interval == 0.25
    assert (told.interval, master.interval) == (1.0, 0.25)


def test_idle_seeders_come_at_different_times() -> None:
    """A thousand seeders that started together would announce together for ever."""
    here = directory()
    intervals = [announce(here, f"s{n}", has(), source=f"10.0.{n // 250}.{n % 250 + 1}").interval for n in range(1000)]
    slots = Counter(int(interval * 10) for interval in intervals)

    assert max(slots.values()) < 100
    assert intervals[0] == announce(here, "s0", has()).interval


def test_a_wave_of_fetching_peers_is_slowed_down() -> None:
    """Ten thousand fetching peers would drown a master with ten thousand announces per second."""
    here = SwarmDirectory(periods=Periods(fetching_secs=1.0, fetching_per_sec=10.0))
    intervals = [announce(here, f"s{n}", lacks(), source=f"10.0.0.{n + 1}").interval for n in range(100)]

    assert intervals[0] == 0.25
    assert intervals[-1] == 10.0


def test_of_many_that_fetch_each_comes_less_often() -> None:
    """At one announce a second each, a thousand peers would take a master's processor, and as much
    of its link as a bundle."""
    periods = Periods(fetching_secs=1.0)

    assert [1.0, 1.0, 2.0] == [periods.fetching(peers) for peers in (1, 16, 64)]
    assert periods.fetching(1000) == pytest.approx(7.9, abs=0.01)


def test_a_silent_peer_is_handed_out_no_more_after_two_periods() -> None:
    """Peers would go on dialling the dead, as Dragonfly's did."""
    here = directory()
    announce(here, "dead", lacks(), source="10.0.0.1", now=100.0)

    before = announce(here, "s2", lacks(), source="10.0.0.2", now=102.4)
    after = announce(here, "s2", lacks(), source="10.0.0.2", now=102.6)

    assert {"10.0.0.1"} == hosts_of(before.swarms[D1].peers)
    assert after.swarms[D1].peers == []


def test_expiry_forgets_the_silent_and_nobody_else() -> None:
    """The memory of a master would grow with every peer that ever existed."""
    here = directory()
    announce(here, "dead", lacks(), source="10.0.0.1", now=100.0)
    announce(here, "idle", has(), source="10.0.0.2", now=100.0)

    assert here.expire(103.0) == ["dead"]
    assert here.addresses((), 0.0) == ["10.0.0.2"]
    assert here.expire(121.0) == ["idle"]
    assert (
        here.statistics().swarms,
        here.statistics().memberships,
        here.statistics().hosts,
        here.statistics().fetching,
        here.statistics().expired,
    ) == (0, 0, 0, 0, 2)


def test_an_announce_after_expiry_brings_everything_back() -> None:
    """A peer that was paused would never be found again."""
    here = directory()
    announce(here, "s1", has(), source="10.0.0.1", now=0.0)
    here.expire(1000.0)
    announce(here, "s1", has(), source="10.0.0.1", now=1000.0)

    assert {"10.0.0.1"} == hosts_of(announce(here, "s2", lacks(), source="10.0.0.2", now=1000.0).swarms[D1].peers)


def test_a_peer_that_moves_is_known_at_its_new_address_only() -> None:
    """After a restart on another port or host, others would dial the old one."""
    here = directory()
    announce(here, "s1", has(), source="10.0.0.1", port=7001)
    announce(here, "s1", has(), source="10.0.0.9", port=7009)

    expected = [PeerAddress(host="10.0.0.9", port=7009, role=PeerRole.SUPERVISOR, complete=True)]
    assert expected == announce(here, "s2", lacks(), source="10.0.0.2").swarms[D1].peers
    assert {"10.0.0.2", "10.0.0.9"} == set(here.addresses((), 0.0))


def test_what_the_cluster_knows_is_in_the_answer() -> None:
    """A peer would never learn that a bundle was removed, or that it has the last copy."""
    here = directory()
    announce(here, "m1", has(D1), has(D2), source="10.0.0.1", role=PeerRole.MASTER)
    known = {D1: SwarmFacts(removed=True), D2: SwarmFacts(pinned=True, replicas=3)}
    request = SwarmAnnounce(peer=PeerId("s1"), role=PeerRole.SUPERVISOR, port=7000, swarms=[lacks(D1), lacks(D2)])
    answer = here.announce(
        request,
        source_host="10.0.0.2",
        now=0.0,
        facts=known.__getitem__,
        masters=["http://10.0.0.1:7060"],
        registered_hosts=["10.0.0.3", "some-name", "10.0.0.1"],
    )

    assert (answer.swarms[D1].removed, answer.swarms[D1].peers) == (True, [])
    assert (answer.swarms[D2].pinned, answer.swarms[D2].replicas, len(answer.swarms[D2].peers)) == (True, 3, 1)
    assert answer.masters == ["http://10.0.0.1:7060"]
    assert sorted(answer.addresses) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


def test_peers_are_told_for_a_while_of_an_address_that_was_shut_out() -> None:
    """Hosts would keep a revoked host's address for as long as that of one that is restarted."""
    here = directory()
    here.shut_out(frozenset({"10.0.0.7", "a-name"}), 10.0)
    here.shut_out(frozenset({"10.0.0.7", "10.0.0.8"}), 200.0)
    told = {now: announce(here, "s1", lacks(), now=now).shut_out for now in (200.0, 400.0, 600.0)}
    here.shut_out(frozenset({"10.0.0.7"}), 600.0)

    assert {200.0: ["10.0.0.7", "10.0.0.8"], 400.0: ["10.0.0.8"], 600.0: []} == told
    assert [] == announce(here, "s1", lacks(), now=600.0).shut_out


def test_members_show_what_each_peer_said() -> None:
    """`bundle distribute` could not show the fleet."""
    here = directory()
    announce(here, "s2", lacks(done=5), source="10.0.0.2", now=3.0)
    announce(here, "s1", has(), source="10.0.0.1", now=2.0)

    members = here.members(D1)

    assert [(member.peer, member.entry.complete, member.entry.done, member.heard_at) for member in members] == [
        ("s1", True, 0, 2.0),
        ("s2", False, 5, 3.0),
    ]
    assert here.counts(D1) == (1, 1)


def test_statistics_are_a_picture_of_one_moment() -> None:
    """/metrics would show numbers that change during the read."""
    here = directory()
    announce(here, "m1", has(D1), has(D2), role=PeerRole.MASTER)
    before = here.statistics()
    announce(here, "s1", lacks(D1), source="10.0.0.2")

    assert (
        before.peers[PeerRole.MASTER],
        before.peers[PeerRole.SUPERVISOR],
        before.swarms,
        before.memberships,
        before.announces,
    ) == (1, 0, 2, 2, 1)
    assert here.statistics().memberships == 3


def test_complete_bundles_of_a_peer_are_counted() -> None:
    """The list of supervisors would show how much a host is told to keep, not how much it has."""
    here = directory()
    announce(here, "s1", has(D1), lacks(D2))

    held = here.complete_bundles(PeerId("s1"))

    assert held is not None
    assert held.number == 1
    assert here.complete_bundles(PeerId("s2")) is None


def test_a_master_is_in_the_swarms_of_what_it_holds_by_the_records() -> None:
    """G11: a master would have to name thousands of bundles in each of its announces."""
    here = directory()
    here.record(D1, frozenset({PeerId("m1"), PeerId("s2")}))
    assert [] == announce(here, "s1", lacks()).swarms[D1].peers  # its address is not known yet
    announce(here, "m1", source="10.0.0.9", role=PeerRole.MASTER)
    announce(here, "s2", source="10.0.0.8")  # it is not a master, so what records say of it does not count

    assert {"10.0.0.9"} == hosts_of(announce(here, "s1", lacks()).swarms[D1].peers)
    here.record(D1, frozenset())
    assert [] == announce(here, "s1", lacks()).swarms[D1].peers


def test_what_a_master_says_itself_counts_more_than_its_record() -> None:
    """G2: peers would dial a master that lost its copy until its record is withdrawn."""
    here = directory()
    here.record(D1, frozenset({PeerId("m1")}))
    announce(here, "m1", lacks(), role=PeerRole.MASTER)

    assert (0, 1) == here.counts(D1)
    announce(here, "m1", role=PeerRole.MASTER)
    assert (1, 0) == here.counts(D1)


def test_a_silent_master_is_not_handed_out_whatever_its_records_say() -> None:
    """B4: peers would dial a dead master until its session is over."""
    here = directory()
    here.record(D1, frozenset({PeerId("m1")}))
    announce(here, "m1", role=PeerRole.MASTER)
    here.expire(1000.0)

    assert (0, 0) == here.counts(D1)
    announce(here, "m1", role=PeerRole.MASTER, now=1000.0)
    assert (1, 0) == here.counts(D1)


def test_revisions_grow_with_what_is_said_and_not_with_how_often() -> None:
    """The console would miss what a host says, or work all day for hosts at rest."""
    here = directory()
    further, stuck = lacks(), msgspec.structs.replace(lacks(), problem="its disk is full")
    further = msgspec.structs.replace(further, done=1)
    said = [(lacks(),), (lacks(),), (further,), (stuck,), (has(),), (has(),), (has(), has(D2)), (has(D2),)]
    steps = []
    for entries in said:
        before = dataclasses.replace(here.revisions)
        announce(here, "s1", *entries, source="10.0.0.1")
        steps.append((here.revisions.said > before.said, here.revisions.states > before.states))
    before = dataclasses.replace(here.revisions)
    here.forget(PeerId("s1"))
    new, same, only_further = (True, True), (False, False), (True, False)

    assert [new, same, only_further, new, new, same, new, new] == steps
    assert here.revisions.said > before.said
    assert here.revisions.states > before.states
