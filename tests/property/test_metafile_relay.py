"""The tree by which a metafile spreads.

If this failed, hosts would wait for each other in a circle, or a master would send a metafile to
each of a thousand hosts before the first piece.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_of import snapshot, supervisor
from starlette.requests import Request

from torrentdist.host.http.web import PRINCIPAL
from torrentdist.master.bundles.metafile_api import giver_of
from torrentdist.model.ids import Digest
from torrentdist.security.authorization import TOKEN_HOLDER, Principal, Proof, Role, certificate_holder
from torrentdist.security.certificate_identity import CertificateIdentity, CertificateRole
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


S1 = certificate_holder(CertificateIdentity("c", CertificateRole.SUPERVISOR, "s1"))
READER = Principal("ann", Role.READER, Proof.TOKEN)


@pytest.mark.parametrize(
    ("sender", "asker", "counts"),
    [
        (S1, "s1", True),
        (TOKEN_HOLDER, "s1", True),
        (S1, "s2", False),
        (TOKEN_HOLDER, "unknown", False),
        (READER, "s1", False),
    ],
)
def test_only_a_registered_host_takes_a_place(sender: Principal, asker: str, counts: bool) -> None:
    """A reader could fill a master's memory with names, or have hosts sent to others that never
    asked for the metafile."""
    relay = MetafileRelay()
    records = SimpleNamespace(snapshot=lambda: snapshot(supervisors=[supervisor("s1"), supervisor("s2")]))
    core: Any = SimpleNamespace(records=records)
    swarms: Any = SimpleNamespace(giver=lambda digest, size, asker: relay.giver(digest, size, asker, 0.0, bool))
    query = f"for={asker}".encode()
    for _ in range(FEWEST):
        giver_of(core, swarms, Request({"type": "http", "query_string": query, PRINCIPAL: sender}), DIGEST, 1, "/p")
    taken = [relay.giver(DIGEST, GIVEN_BYTES, f"new-{number}", 0.0, bool) for number in range(2)]

    assert (asker if counts else None) == taken[-1]
