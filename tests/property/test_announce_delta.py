"""Shortened answers to announces.

If this failed, peers would dial hosts that have left, or masters would send each of a thousand
hosts its neighbours again and again.
"""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.swarm_place import SwarmPlace
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole, SwarmAnnounce, SwarmAnswer, SwarmPeers
from torrentdist.swarm.directory.announce_delta import completed, shortened

DIGESTS = [Digest("a" * 64), Digest("b" * 64)]
addresses = st.builds(
    PeerAddress,
    host=st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3"]),
    port=st.just(7061),
    role=st.sampled_from(PeerRole),
    complete=st.booleans(),
)
swarms = st.builds(
    SwarmPeers,
    peers=st.lists(addresses, max_size=3, unique_by=lambda peer: peer.host),
    removed=st.booleans(),
    pinned=st.booleans(),
    replicas=st.integers(0, 3),
    place=st.none() | st.builds(SwarmPlace, number=st.integers(0, 2), receivers=st.just(3)),
)


@st.composite
def answers(draw: st.DrawFn) -> SwarmAnswer:
    few = draw(st.sampled_from([["10.0.0.1"], ["10.0.0.1", "10.0.0.2"]]))
    return SwarmAnswer(
        interval=draw(st.sampled_from([0.25, 1.0, 30.0])),
        you="10.0.0.9",
        swarms=draw(st.dictionaries(st.sampled_from(DIGESTS), swarms)),
        addresses=few,
        addresses_tag=str(len(few)),
        masters=draw(st.sampled_from([[], ["http://10.0.0.1:7060"]])),
        wanted=draw(st.sampled_from([[], DIGESTS[:1]])),
    )


@given(st.lists(answers(), min_size=1, max_size=8), st.data())
def test_whoever_is_told_the_rest_knows_all(said: list[SwarmAnswer], data: st.DataObject) -> None:
    known: SwarmAnswer | None = None
    for answer in [turn for turn in said for _ in range(data.draw(st.integers(1, 2)))]:
        heard = SwarmAnnounce(
            peer=PeerId("s1"),
            role=PeerRole.SUPERVISOR,
            port=1,
            known=known.tag if known else "",
            addresses=known.addresses_tag if known else "",
        )
        wire = msgspec.json.decode(msgspec.json.encode(shortened(answer, heard)), type=SwarmAnswer)
        known = completed(wire, known)
        assert msgspec.structs.replace(answer, tag=known.tag) == known


@given(answers())
def test_what_is_known_is_not_said_again_in_whatever_order(answer: SwarmAnswer) -> None:
    first = shortened(answer, announce(""))
    turned = {digest: msgspec.structs.replace(s, peers=s.peers[::-1]) for digest, s in answer.swarms.items()}
    again = shortened(msgspec.structs.replace(answer, swarms=turned, interval=7.0), announce(first.tag))

    assert SwarmAnswer(interval=7.0, you=answer.you, addresses_tag=answer.addresses_tag, tag=first.tag) == again


def announce(known: str) -> SwarmAnnounce:
    return SwarmAnnounce(peer=PeerId("s1"), role=PeerRole.SUPERVISOR, port=1, known=known)


def test_only_the_answer_before_completes_a_shortened_one() -> None:
    """A peer would keep addresses that its master took back, or swarms of another answer."""
    before = SwarmAnswer(interval=1.0, you="a", addresses=["10.0.0.1"], addresses_tag="1")
    cases = [
        (SwarmAnswer(interval=2.0, you="b", addresses_tag="1"), ["10.0.0.1"]),
        (SwarmAnswer(interval=2.0, you="b", addresses_tag="2"), []),
        (SwarmAnswer(interval=2.0, you="b", addresses=["10.0.0.2"], addresses_tag="1"), ["10.0.0.2"]),
        (SwarmAnswer(interval=2.0, you="b", addresses=["10.0.0.2"], addresses_tag="2"), ["10.0.0.2"]),
    ]
    for answer, addresses in cases:
        assert msgspec.structs.replace(answer, addresses=addresses) == completed(answer, before)
