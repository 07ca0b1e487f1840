"""The tree by which a metafile spreads.

If this failed, hosts would wait for each other in a circle, or a master would send a metafile to
each of a thousand hosts before the first piece.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from torrentdist.model.ids import Digest
from torrentdist.swarm.directory.metafile_relay import FEWEST, FORGET_SECS, GIVEN_BYTES, MetafileRelay

DIGEST = Digest("a" * 64)
sizes = st.integers(1, 4 * GIVEN_BYTES)


@given(size=sizes, hosts=st.integers(1, 300), unable=st.sets(st.integers(0, 299)))
def test_every_chain_ends_at_the_master(size: int, hosts: int, unable: set[int]) -> None:
    handing = MetafileRelay()
    able = {f"s{number}" for number in range(hosts) if number not in unable}
    givers = [handing.giver(DIGEST, size, f"s{number}", 0.0, able.__contains__) for number in range(hosts)]

    assert all(giver is None or (giver in able and int(giver[1:]) < number) for number, giver in enumerate(givers))


@given(size=sizes, hosts=st.integers(1, 300))
def test_nobody_gives_more_than_its_part(size: int, hosts: int) -> None:
    handing = MetafileRelay()
    given_by = Counter(handing.giver(DIGEST, size, f"s{number}", 0.0, lambda _: True) for number in range(hosts))

    assert max(given_by.values()) <= max(FEWEST, GIVEN_BYTES // size)


def test_a_host_that_asks_again_is_served_by_the_master() -> None:
    handing = MetafileRelay()
    first = [handing.giver(DIGEST, GIVEN_BYTES, f"s{number}", 0.0, lambda _: True) for number in range(8)]

    assert [None, None, "s0", "s0", "s1", "s1", "s2", "s2"] == first
    assert handing.giver(DIGEST, GIVEN_BYTES, "s3", 1.0, lambda _: True) is None


def test_a_host_that_asked_long_ago_is_sent_nobody() -> None:
    """A host would be sent to one that may have dropped the bundle since."""
    handing = MetafileRelay()
    for number in range(4):
        handing.giver(DIGEST, GIVEN_BYTES, f"s{number}", 100.0, lambda _: True)
    later = [100.0 + times * FORGET_SECS for times in (1, 2, 4)]

    assert ["s1", "s1", None] == [
        handing.giver(DIGEST, GIVEN_BYTES, f"s{number}", now, lambda _: True) for number, now in enumerate(later, 4)
    ]
