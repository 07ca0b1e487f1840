"""Reports which transfers have had no peer for so long that they count as stuck.

Always: a transfer that has just begun is not stuck. Meeting a peer restarts the count.
Never: read a clock. The caller passes the time.
"""

from torrentdist.model.ids import Digest

PATIENCE_SECS = 3.0
"""Time without a peer after which a transfer counts as stuck. Dialling a peer takes milliseconds,
and every announce repeats it."""


class PeerlessTransfers:
    def __init__(self) -> None:
        self._since: dict[Digest, float] = {}

    def problem(self, digest: Digest, *, peers: int, now: float) -> str:
        """Returns why an incomplete transfer makes no progress; empty if it may still."""
        if peers:
            self._since.pop(digest, None)
            return ""
        return "no peers" if now - self._since.setdefault(digest, now) >= PATIENCE_SECS else ""

    def forget(self, digest: Digest) -> None:
        self._since.pop(digest, None)
