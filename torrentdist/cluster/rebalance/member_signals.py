"""Events, orders and work of a member of a resource group: the values that its state machine takes
and gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from torrentdist.cluster.rebalance.barrier_ownership import BarrierLease
from torrentdist.cluster.rebalance.group_requests import Answer, Request


class Work(StrEnum):
    IDLE = "idle"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


NEXT_WORK: Mapping[Work, frozenset[Work]] = {
    Work.IDLE: frozenset({Work.STARTING}),
    Work.STARTING: frozenset({Work.RUNNING, Work.STOPPING}),
    Work.RUNNING: frozenset({Work.STOPPING}),
    Work.STOPPING: frozenset({Work.IDLE}),
}
"""The allowed changes of work. Whatever was started, even by half, is stopped before anything else.
"""


@dataclass(frozen=True)
class Order:
    """The plan's order to this member."""

    generation: int = 0
    mine: frozenset[str] = frozenset()
    stop: bool = False
    """Whether everybody has to stop and report it."""
    zxid: int = 0
    """zxid of the transaction that wrote the plan."""


@dataclass(frozen=True)
class InSession:
    session: int | None


@dataclass(frozen=True)
class Answered:
    serial: int
    answer: Answer
    lease: BarrierLease


@dataclass(frozen=True)
class Changed:
    """A watch fired: read again."""

    path: str


@dataclass(frozen=True)
class WorkStarted:
    """`on_start` has returned."""


@dataclass(frozen=True)
class StartFailed:
    """`on_start` raised, or was cancelled as told."""


@dataclass(frozen=True)
class Stopped:
    """`on_stop` has returned or raised. By its contract nothing runs any more."""


@dataclass(frozen=True)
class Depart:
    """Leave the group for good."""


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


Event = InSession | Answered | Changed | WorkStarted | StartFailed | Stopped | Depart | Tick


@dataclass(frozen=True)
class AskZooKeeper:
    serial: int
    session: int | None
    request: Request


@dataclass(frozen=True)
class CallStart:
    resources: Mapping[str, int]


@dataclass(frozen=True)
class CancelStart:
    pass


@dataclass(frozen=True)
class CallStop:
    pass


Action = AskZooKeeper | CallStart | CancelStart | CallStop
