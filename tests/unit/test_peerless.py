"""When a transfer without peers counts as stuck."""

from __future__ import annotations

from torrentdist.host.known_swarms import PATIENCE_SECS, PeerlessTransfers
from torrentdist.model.ids import Digest

A = Digest("a" * 64)


def test_a_transfer_that_has_just_begun_is_not_stuck() -> None:
    """Every distribution would begin with all of its hosts stuck."""
    peerless = PeerlessTransfers()

    assert "" == peerless.problem(A, peers=0, now=10.0)
    assert "" == peerless.problem(A, peers=0, now=10.0 + PATIENCE_SECS - 0.1)
    assert "no peers" == peerless.problem(A, peers=0, now=10.0 + PATIENCE_SECS)


def test_one_that_has_met_a_peer_or_begins_anew_has_patience_again() -> None:
    """A host whose peer was restarted would be called stuck at once."""
    peerless = PeerlessTransfers()
    peerless.problem(A, peers=0, now=0.0)

    assert "" == peerless.problem(A, peers=1, now=100.0)
    assert "" == peerless.problem(A, peers=0, now=101.0)
    peerless.forget(A)
    assert "" == peerless.problem(A, peers=0, now=200.0)
