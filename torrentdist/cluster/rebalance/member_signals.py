"""The values that the state machine of a group member takes and returns: events, orders and phases
of work."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

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


class Order(msgspec.Struct, frozen=True):
    """What the plan tells this member to do."""

    generation: int = 0
    mine: frozenset[str] = frozenset()
    stop: bool = False
    """Whether every member must stop and report it."""
    zxid: int = 0
    """zxid of the transaction that wrote the plan."""


class InSession(msgspec.Struct, frozen=True):
    session: int | None


class Answered(msgspec.Struct, frozen=True):
    serial: int
    answer: Answer
    lease: BarrierLease


class Changed(msgspec.Struct, frozen=True):
    """A watch fired: the path has to be read again."""

    path: str


class WorkStarted(msgspec.Struct, frozen=True):
    """`on_start` has returned."""


class StartFailed(msgspec.Struct, frozen=True):
    """`on_start` raised an error, or was cancelled as requested."""


class Stopped(msgspec.Struct, frozen=True):
    """`on_stop` has returned or raised an error. By its contract no work runs any more."""


class Depart(msgspec.Struct, frozen=True):
    """Leave the group permanently."""


class Tick(msgspec.Struct, frozen=True):
    """Time has passed."""


Event = InSession | Answered | Changed | WorkStarted | StartFailed | Stopped | Depart | Tick


class AskZooKeeper(msgspec.Struct, frozen=True):
    serial: int
    session: int | None
    request: Request


class CallStart(msgspec.Struct, frozen=True):
    resources: Mapping[str, int]


class CancelStart(msgspec.Struct, frozen=True):
    pass


class CallStop(msgspec.Struct, frozen=True):
    pass


Action = AskZooKeeper | CallStart | CancelStart | CallStop
