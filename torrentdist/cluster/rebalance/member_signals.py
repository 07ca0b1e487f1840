"""The values that the state machine of a group member takes and returns: events, orders and phases
of work."""

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
"""The allowed transitions of work. Whatever was started, even partly, is stopped before anything
else starts."""


@dataclass(frozen=True)
class Order:
    """What the plan tells this member to do."""

    generation: int = 0
    mine: frozenset[str] = frozenset()
    stop: bool = False
    """Whether every member must stop and report it."""
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
    """A watch fired: the path has to be read again."""

    path: str


@dataclass(frozen=True)
class WorkStarted:
    """`on_start` has returned."""


@dataclass(frozen=True)
class StartFailed:
    """`on_start` raised an error, or was cancelled as requested."""


@dataclass(frozen=True)
class Stopped:
    """`on_stop` has returned or raised an error. By its contract no work runs any more."""


@dataclass(frozen=True)
class Depart:
    """Leave the group permanently."""


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
