"""The addresses that the engine of a host may talk to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from torrentdist.host.known_swarms import KnownSwarms
from torrentdist.swarm.swarm_picture import SwarmPicture


def test_a_peer_that_a_master_has_just_heard_of_stays_allowed_when_an_answer_comes() -> None:
    """If this fails, a peer that announces itself while the master's own announce is answered is
    refused by its engine until somebody else announces itself."""
    allowed: list[frozenset[str]] = []
    engine: Any = SimpleNamespace(allow=allowed.append, set_rtt=lambda secs: None)
    known = KnownSwarms(engine)

    known.apply(SwarmPicture(addresses=frozenset({"10.0.0.1"})))
    known.allow_also(["10.0.0.2"])
    known.apply(SwarmPicture(addresses=frozenset({"10.0.0.1", "10.0.0.3"})))

    assert [{"10.0.0.1"}, {"10.0.0.1", "10.0.0.2"}, {"10.0.0.1", "10.0.0.2", "10.0.0.3"}] == allowed


def test_the_engine_is_told_of_changes_alone() -> None:
    """If this fails, each announce builds a filter of thousands of addresses."""
    allowed: list[frozenset[str]] = []
    engine: Any = SimpleNamespace(allow=allowed.append, set_rtt=lambda secs: None)
    known = KnownSwarms(engine)

    known.allow_also(["10.0.0.1"])
    known.allow_also(["10.0.0.1"])
    known.apply(SwarmPicture(addresses=frozenset({"10.0.0.1"})))

    assert [{"10.0.0.1"}] == allowed
