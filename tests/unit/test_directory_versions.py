"""The plan of a swarm in which masters receive an upload, and some hosts have most of the bundle
from an older version."""

from __future__ import annotations

import pytest
from announced_peers import D1, announce, has, lacks

from torrentdist.model.swarm_place import SwarmPlace
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmEntry
from torrentdist.swarm.directory.directory import SwarmDirectory
from torrentdist.swarm.plan.conductor import JUDGED_SECS, SHARES


def partly(done: int, *, local: int = 0) -> SwarmEntry:
    return SwarmEntry(digest=D1, complete=False, done=done, local=local, size=1000)


def place_of(here: SwarmDirectory, name: str, entry: SwarmEntry, now: float) -> SwarmPlace | None:
    return announce(here, name, entry, source=f"10.0.1.{ord(name[-1])}", now=now).swarms[D1].place


def test_masters_share_what_an_uploader_sends() -> None:
    """Each master would request everything from the uploader, whose link is often the slowest."""
    here = SwarmDirectory()
    announce(here, "uploader", has(), role=PeerRole.CLIENT)
    names = ["m1", "m2", "m3"]
    for turn in range(2):
        answers = [
            announce(here, name, lacks(), source=f"10.0.1.{number}", role=PeerRole.MASTER, now=float(turn))
            for number, name in enumerate(names)
        ]
    places = [answer.swarms[D1].place for answer in answers]

    assert {0, 1, 2} == {place.number for place in places if place}
    assert {3} == {place.receivers for place in places if place}


def test_a_master_that_holds_the_bundle_has_no_place() -> None:
    """A share would be kept for a master that needs nothing."""
    here = SwarmDirectory()
    announce(here, "m1", has(), role=PeerRole.MASTER, source="10.0.1.1")
    for name in ("m2", "s1"):
        announce(here, name, lacks(), source=f"10.0.2.{ord(name[0])}")
    answer = announce(here, "m1", has(), role=PeerRole.MASTER, source="10.0.1.1", now=1.0)

    assert answer.swarms[D1].place is None


@pytest.mark.case("H5")
def test_what_a_host_had_before_says_nothing_about_its_pace() -> None:
    """Next to hosts with the old version, all others would count as slow and lose their shares."""
    here = SwarmDirectory()
    announce(here, "m1", has(), role=PeerRole.MASTER)
    for name in ("old-a", "old-b", "old-c", "new-d"):
        place_of(here, name, partly(0), 0.0)
    later = JUDGED_SECS + 1
    for name in ("old-a", "old-b", "old-c"):
        place_of(here, name, partly(940, local=900), later)
    place = place_of(here, "new-d", partly(60), later + 1)

    assert place is not None
    assert place.number < SHARES


@pytest.mark.case("H5")
def test_a_host_that_has_most_from_before_still_counts_as_waiting() -> None:
    """A host without a share that gets no first byte would never be told of a holder."""
    here = SwarmDirectory()
    for number in range(3):
        announce(here, f"m{number}", has(), source=f"10.3.0.{number}", role=PeerRole.MASTER)
    entry = partly(900, local=900)
    announce(here, "z", entry, source="10.2.0.2")
    for done, now in ((lacks(), 0.0), (partly(500), 4.0)):
        for number in range(400):
            announce(here, f"f{number}", done, source=f"10.1.{number // 250}.{number % 250 + 1}", now=now)
    peers = announce(here, "z", entry, source="10.2.0.2", now=5.0).swarms[D1].peers

    assert 3 == sum(peer.role is PeerRole.MASTER for peer in peers)
