"""Tells which transfers have been without a peer for long enough to be called stuck.

Always: a transfer that has only just begun is not stuck, and one that met a peer begins anew.
Never: read a clock; the moment is passed in.
"""

from __future__ import annotations

from torrentdist.model.ids import Digest

PATIENCE_SECS = 3.0
"""Peers are dialled within milliseconds, and again with each announce."""


class Peerless:
    def __init__(self) -> None:
        self._since: dict[Digest, float] = {}

    def problem(self, digest: Digest, *, peers: int, now: float) -> str:
        """Why a transfer that is not complete doesn't get on; empty while that is not known yet."""
        if peers:
            self._since.pop(digest, None)
            return ""
        return "no peers" if now - self._since.setdefault(digest, now) >= PATIENCE_SECS else ""

    def forget(self, digest: Digest) -> None:
        self._since.pop(digest, None)
