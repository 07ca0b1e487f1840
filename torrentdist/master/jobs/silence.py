"""Which supervisors have fallen silent: registered in ZooKeeper, but without a heartbeat to this
leader for too long.

Always holds: silence counts from what this leader could have heard itself: not from before its
election, a gap in its own sight of ZooKeeper, or the moment at which it saw the supervisor first.
Must not do: know clocks.
"""

from __future__ import annotations

from collections.abc import Collection

from torrentdist.log import get_logger
from torrentdist.model.ids import SupervisorId

log = get_logger()

HEARTBEAT_SECS = 3.0
HEARTBEATS_PER_SEC = 8.0
"""Heartbeats per second that a leader takes. With many supervisors each sends less often: one costs
the leader and the host about a millisecond each.
"""
SHARE_OF_SILENCE = 1 / 4
"""But so often that three can be lost before anybody is called silent."""
LONGEST_HEARTBEAT_SECS = 15.0


class Silence:
    """`limit`: in seconds; 0: nobody is ever called silent. Every `now` is of one monotonic
    clock."""

    def __init__(self, limit: float) -> None:
        self._limit = limit or float("inf")
        self._since: dict[SupervisorId, float] = {}
        self._silent: frozenset[SupervisorId] = frozenset()

    def heartbeat_secs(self, supervisors: int) -> float:
        """How often one of so many is to come. What changes is told at once."""
        longest = min(LONGEST_HEARTBEAT_SECS, self._limit * SHARE_OF_SILENCE)
        return max(HEARTBEAT_SECS, min(longest, supervisors / HEARTBEATS_PER_SEC))

    def heard(self, supervisor: SupervisorId, now: float) -> None:
        self._since[supervisor] = now

    def of(self, registered: Collection[SupervisorId], now: float, listened: float) -> frozenset[SupervisorId]:
        """`listened`: for how long we have without a gap."""
        self._since = {id_: self._since.get(id_, now) for id_ in registered}
        silent = frozenset(id_ for id_, since in self._since.items() if min(now - since, listened) > self._limit)
        for id_ in sorted(silent - self._silent):
            log.warning(
                "a supervisor is silent, its workers move", supervisor=id_, seconds=round(now - self._since[id_])
            )
        self._silent = silent
        return silent

    def secs(self, supervisor: SupervisorId, now: float, listened: float) -> float:
        """For how long nothing was heard of it."""
        return max(0.0, min(now - self._since.get(supervisor, now), listened))

    def due_in(self, now: float) -> float:
        """When another one may be."""
        waits = (since + self._limit - now for id_, since in self._since.items() if id_ not in self._silent)
        return max(0.0, min(waits, default=float("inf")))
