"""Hostile announces, or very many, do little to the directory, and are refused quickly."""

from __future__ import annotations

import time
from typing import Any

import pytest
from announced_peers import D1, D2, announce, has, lacks

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmEntry
from torrentdist.swarm.directory.admission import Admission, limits_for
from torrentdist.swarm.directory.announce_binding import AnnounceSender
from torrentdist.swarm.directory.directory import FULLY_ANSWERED, MAX_PROBLEM_LENGTH, Limits, SwarmDirectory
from torrentdist.swarm.directory.memberships import Memberships


def numbered(number: int) -> Digest:
    return Digest(f"{number:064x}")


def refusal(here: SwarmDirectory, name: str, *entries: SwarmEntry, **more: Any) -> str:
    with pytest.raises(TorrentdistError) as caught:
        announce(here, name, *entries, **more)
    return caught.value.code


@pytest.mark.parametrize(
    ("name", "entry", "port", "code"),
    [
        ("../etc", has(), 7000, "invalid_id"),
        ("", has(), 7000, "invalid_id"),
        ("s1", has(Digest("abc")), 7000, "invalid_digest"),
        ("s1", has(Digest("A" * 64)), 7000, "invalid_digest"),
        ("s1", has(), -1, "invalid_request"),
        ("s1", has(), 65536, "invalid_request"),
        ("s1", SwarmEntry(digest=D1, complete=False, done=-1), 7000, "invalid_request"),
        ("s1", SwarmEntry(digest=D1, complete=False, rate=float("nan")), 7000, "invalid_request"),
        ("s1", SwarmEntry(digest=D1, complete=False, size=1 << 70), 7000, "invalid_request"),
        ("s1", SwarmEntry(digest=D1, complete=True, own=10**400), 7000, "invalid_request"),
        ("s1", SwarmEntry(digest=D1, complete=True, own=-1), 7000, "invalid_request"),
        ("s1", SwarmEntry(digest=D1, complete=True, from_plugin=10**400), 7000, "invalid_request"),
    ],
)
def test_nonsense_is_refused(name: str, entry: SwarmEntry, port: int, code: str) -> None:
    """Nonsense would reach other peers, the fleet's picture and the metrics."""
    here = SwarmDirectory()

    assert code == refusal(here, name, entry, port=port)
    assert here.statistics().memberships == 0


@pytest.mark.parametrize("free", [10**400, -2], ids=["huge", "negative"])
def test_impossible_room_is_refused(free: int) -> None:
    """If this fails, one host that tells so keeps the console's list of hosts and `supervisor ls`
    from everybody."""
    here = SwarmDirectory()
    said = SwarmAnnounce(peer=PeerId("s1"), role=PeerRole.SUPERVISOR, port=7000, free=free)
    with pytest.raises(TorrentdistError, match="free"):
        here.announce(said, source_host="10.0.0.1", now=0.0)

    assert {} == here.conditions.free


def test_a_refused_announce_changes_nothing() -> None:
    """A peer would be half known: in some of the swarms, under an old address."""
    here = SwarmDirectory()
    announce(here, "s1", has(D1), source="10.0.0.1")
    refusal(here, "s1", has(D2), has(Digest("zz")), source="10.0.0.9")

    members = here.members(D1)
    assert [member.host for member in members] == ["10.0.0.1"]
    assert here.counts(D2) == (0, 0)


def test_a_swarm_named_twice_is_refused() -> None:
    """The peer would be complete and incomplete in one swarm."""
    assert refusal(SwarmDirectory(), "s1", has(), lacks()) == "invalid_request"


def test_the_number_of_swarms_of_a_peer_is_bounded() -> None:
    """One announce could fill a master's memory."""
    here = SwarmDirectory(limits=Limits(swarms_per_peer=3))
    announce(here, "s1", *(has(numbered(n)) for n in range(3)))

    assert refusal(here, "s1", *(has(numbered(n)) for n in range(4))) == "invalid_request"
    stored = SwarmAnnounce(peer=PeerId("s1"), role=PeerRole.SUPERVISOR, port=1, stored=[D1] * 4)
    with pytest.raises(TorrentdistError):
        here.announce(stored, source_host="10.0.0.1", now=0.0)


def test_what_very_many_failed_fetches_cost_is_bounded() -> None:
    """A full host that cannot fetch thousands of bundles would stop every master for a second,
    each second, so that none of them leads for long."""
    here, names = SwarmDirectory(), [numbered(number) for number in range(FULLY_ANSWERED + 10)]
    for peer, source in (("s1", "10.0.0.1"), ("s2", "10.0.0.2")):
        answer = announce(here, peer, has(D1), *map(lacks, names), has(D2), source=source)

    assert {D1, D2, *names} == answer.swarms.keys()
    assert names[:FULLY_ANSWERED] == [digest for digest, said in answer.swarms.items() if said.peers and said.place]
    assert (0, 2) == here.counts(names[-1])


@pytest.mark.parametrize(
    "limits", [Limits(peers_per_swarm=2), Limits(peers=2), Limits(memberships=2), Limits(peers_per_host=2)]
)
def test_a_full_directory_refuses_newcomers_and_keeps_its_peers(limits: Limits) -> None:
    """A flood of made-up peers would fill the memory, or push out the real ones."""
    here = SwarmDirectory(limits=limits)
    announce(here, "s1", has(), port=1)
    announce(here, "s2", lacks(), port=2)

    assert refusal(here, "s3", has(), port=3) == "not_ready"
    assert announce(here, "s2", has(), port=2).you == "10.0.0.1"


def test_a_directory_has_room_for_as_many_peers_as_the_setting_says() -> None:
    """If this fails, hosts of a large cluster are told to wait, or one of them fills a
    directory."""
    limits = limits_for(200_000)

    assert [200_000, 200_000] == [limits.peers, limits.peers_per_swarm]
    assert [20_000, 2_000_000] == [limits.peers_per_host, limits.memberships]
    assert 1 == limits_for(5).peers_per_host


@pytest.mark.parametrize("role", [PeerRole.CLIENT, PeerRole.STOCK])
def test_guests_leave_room_for_hosts(role: PeerRole) -> None:
    """A reader's token could fill the directory of every master, so that hosts that start or fetch
    are told to wait."""
    here = SwarmDirectory(limits=Limits(peers=600, peers_per_host=4, memberships=6000))
    for n in range(60):
        announce(here, f"c{n}", has(), source=f"10.0.{n // 2}.1", port=n + 1, role=role)

    assert "not_ready" == refusal(here, "c60", has(), source="10.0.30.1", role=role)
    for n in range(540):
        announce(here, f"s{n}", has(), lacks(D2), source=f"10.1.{n // 4}.1", port=n + 100)
    assert announce(here, "c3", lacks(), source="10.0.1.1", port=4, role=role).you == "10.0.1.1"
    assert announce(here, "c60", has(), source="10.0.30.9", role=role, now=1e4).you == "10.0.30.9"


def test_guests_at_one_address_leave_room_for_its_host() -> None:
    """A user of a host could keep the host's own supervisor out of every swarm."""
    here = SwarmDirectory(limits=Limits(peers_per_host=4))
    for n in range(2):
        announce(here, f"c{n}", has(), port=n + 1, role=PeerRole.CLIENT)

    assert "not_ready" == refusal(here, "c2", has(), port=3, role=PeerRole.CLIENT)
    assert announce(here, "s1", has(), port=4).you == "10.0.0.1"


def test_guests_name_few_swarms() -> None:
    """A few clients of one reader could take all memberships that a master keeps."""
    here = SwarmDirectory(limits=Limits(swarms_per_peer=600, memberships=1000))
    entries = [has(numbered(n)) for n in range(110)]

    assert "invalid_request" == refusal(here, "c1", *entries[:61], role=PeerRole.CLIENT)
    assert "not_ready" == refusal(here, "c1", *entries[:51], role=PeerRole.CLIENT, owner="ann@10.0.0.1")
    for n in range(2):
        announce(here, f"c{n}", *entries[:49], port=n + 1, role=PeerRole.CLIENT, owner=f"@10.0.0.{n}")
    assert "not_ready" == refusal(here, "c3", *entries[:3], port=9, role=PeerRole.CLIENT)
    announce(here, "s1", *entries)


def test_clients_of_one_sender_leave_room_for_those_of_others() -> None:
    """One reader's token, used at many addresses, could keep everybody else's uploads out of the
    swarm."""
    here = SwarmDirectory(limits=Limits(peers=2400))
    for n in range(60):
        announce(here, f"c{n}", has(), source=f"10.0.0.{n}", role=PeerRole.CLIENT, owner=f"ann@10.0.0.{n}")

    assert "not_ready" == refusal(here, "c60", has(), source="10.0.0.99", role=PeerRole.CLIENT, owner="ann@10.0.0.99")
    announce(here, "c60", has(), source="10.0.0.99", role=PeerRole.CLIENT, owner="ann.b@10.0.0.99")
    announce(here, "c0", lacks(), source="10.0.0.0", role=PeerRole.CLIENT, owner="ann@10.0.0.0")


def test_clients_with_the_shared_token_have_all_room_of_clients() -> None:
    """Where all users have the token of the daemons, downloads would be told to wait although the
    directory has room."""
    here = SwarmDirectory(limits=Limits(peers=800))
    for n in range(80):
        sender = AnnounceSender(f"10.0.0.{n}", "token", is_host=False, has_shared_name=True)
        announce(here, f"c{n}", has(), source=sender.address, role=PeerRole.CLIENT, owner=sender.owner)

    assert (80, 0) == here.counts(D1)


@pytest.mark.parametrize("owner", ["", "ann@10.0.0.1"])
def test_a_small_directory_has_room_for_some_clients(owner: str) -> None:
    """Where `swarm.most_peers` is small, the third download of a user would be told to wait."""
    here = SwarmDirectory(limits=limits_for(100))
    for n in range(20):
        announce(here, f"c{n}", has(), lacks(D2), source=f"10.0.0.{n}", role=PeerRole.CLIENT, owner=owner)

    assert 20 == here.statistics().peers[PeerRole.CLIENT]


@pytest.mark.parametrize(("role", "told"), [(PeerRole.SUPERVISOR, ["pod-1"]), (PeerRole.CLIENT, [])])
def test_only_supervisors_tell_who_uses_a_bundle(role: PeerRole, told: list[str]) -> None:
    """A reader could show operators pods that do not exist, so that nobody dares to remove a
    bundle."""
    here = SwarmDirectory()
    announce(here, "p1", SwarmEntry(digest=D1, complete=True, used_by=["pod-1"]), role=role)

    assert told == here.members(D1)[0].entry.used_by


def test_guests_that_find_no_room_cost_little() -> None:
    """A reader could keep a master busy with looks at all of its peers, and with nothing else."""
    looks: list[float] = []
    admission = Admission(Memberships(), Limits(memberships=0), own_host="", expire=looks.append)
    for role, now in [(PeerRole.CLIENT, 5.0), (PeerRole.STOCK, 5.9), (PeerRole.CLIENT, 6.0), (PeerRole.MASTER, 6.1)]:
        with pytest.raises(TorrentdistError, match="no room"):
            admission.check(SwarmAnnounce(peer=PeerId("c"), role=role, port=1, swarms=[has()]), "10.0.0.1", now)

    assert [5.0, 6.0, 6.1] == looks


def test_the_dead_make_room() -> None:
    """A flood would keep a master closed until an operator restarts it."""
    here = SwarmDirectory(limits=Limits(peers=2))
    announce(here, "s1", has(), now=0.0)
    announce(here, "s2", has(), port=2, now=0.0)

    assert announce(here, "s3", has(), port=3, now=1000.0).you == "10.0.0.1"


def test_long_problems_are_cut() -> None:
    """A peer could store as much text as it likes in every master, for each swarm."""
    here = SwarmDirectory()
    announce(here, "s1", SwarmEntry(digest=D1, complete=False, problem="x" * 5000))

    assert len(here.members(D1)[0].entry.problem) == MAX_PROBLEM_LENGTH


def test_an_announce_is_cheap_in_a_big_cluster() -> None:
    """A thousand hosts in one swarm would keep a master busy with nothing else."""
    here = SwarmDirectory()
    entries = [has(numbered(n)) for n in range(500)]
    for n in range(3):
        announce(here, f"m{n}", *entries, source=f"10.9.0.{n + 1}", role=PeerRole.MASTER)
    hot = numbered(0)
    began = time.process_time()
    for _ in range(2):
        for n in range(1000):
            announce(here, f"s{n}", lacks(hot), source=f"10.1.{n // 250}.{n % 250 + 1}")
    fetching = (time.process_time() - began) / 2000
    began = time.process_time()
    for n in range(30):
        announce(here, f"m{n % 3}", *entries, source=f"10.9.0.{n % 3 + 1}", role=PeerRole.MASTER)
    holding = (time.process_time() - began) / 30

    assert fetching < 0.010, f"{fetching * 1000:.2f} ms"
    assert holding < 0.010, f"{holding * 1000:.2f} ms"
