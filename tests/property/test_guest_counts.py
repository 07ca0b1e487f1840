"""The counts of guests against a look at all peers, under any history of announces and
goodbyes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from property_size import examples

from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmEntry
from torrentdist.swarm.directory.guest_counts import GUESTS
from torrentdist.swarm.directory.memberships import Memberships

DIGESTS = [Digest(letter * 64) for letter in "abc"]
PEERS = st.sampled_from([PeerId(f"p{number}") for number in range(4)])
OWNERS = st.sampled_from(["", "ann@10.0.0.1", "ann@10.0.0.2", "ann.b@10.0.0.1", "@10.0.0.1"])
HOSTS = st.sampled_from(["10.0.0.1", "10.0.0.2"])
ARRIVALS = st.tuples(PEERS, st.sampled_from(list(PeerRole)), OWNERS, HOSTS, st.sets(st.sampled_from(DIGESTS)))
RECORDS = st.tuples(st.sampled_from(DIGESTS), st.frozensets(PEERS))


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.one_of(ARRIVALS, PEERS, RECORDS), max_size=30))
def test_counts_agree_with_a_look_at_all_peers(history: list[Any]) -> None:
    """If this fails, clients that have gone keep others out for ever, or one sender's clients find
    more room than its part."""
    members = Memberships()
    for step in history:
        match step:
            case (peer, role, owner, host, digests):
                entries = [SwarmEntry(digest=digest, complete=True) for digest in sorted(digests)]
                announce = SwarmAnnounce(peer=peer, role=role, port=1, swarms=entries)
                members.arrive(announce, host, 0.0, owner=owner)
            case (digest, holders):
                members.record(digest, holders)
            case str(peer):
                members.forget(PeerId(peer))

    peers: Counter[str] = Counter()
    memberships: Counter[str] = Counter()
    guests = [peer for peer in members.peers.values() if peer.role in GUESTS]
    for guest in guests:
        for name in {"", guest.owner.rpartition("@")[0]}:
            peers[name] += 1
            memberships[name] += len(guest.entries)
    assert dict(peers) == dict(members.guests.peers)
    assert dict(+memberships) == dict(members.guests.memberships)
    assert dict(Counter(guest.host for guest in guests)) == dict(members.guests.at)
