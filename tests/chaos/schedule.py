"""Decides which fault hits which member when, as a pure function of a seed.

Always: everything that is broken is whole again before the schedule ends. One disk at a time is
damaged, with a rest before the next. No member has two faults at once. Never: look at the cluster,
or at a clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

MASTERS = ("master-1", "master-2", "master-3")
SUPERVISORS = ("supervisor-1", "supervisor-2")
SERVERS = ("zookeeper-1", "zookeeper-2", "zookeeper-3")
DAEMONS = MASTERS + SUPERVISORS
LEADER = "leader"
"""The master that leads when the fault comes."""
SERVERS_LEADER = "zookeeper-leader"
TREE = "tree"
"""ZooKeeper's tree."""

SESSION_SECS = 4.0
REST_SECS = 8.0
"""Time between two faults of disks, in which lost content has to be fetched again from
somewhere."""
LONGEST_SECS = 9.0
FORGET_REST_SECS = 60.0
"""Time without work while the tree is gone."""


CI_SECS, CI_SEED = 60.0, 673
"""CI always runs the same schedule, so that a failure there comes from the change under test. `make
chaos` draws new ones. This seed is one of few that bring every kind of fault within a minute."""


class Way(StrEnum):
    """How a daemon is cut off from ZooKeeper."""

    REFUSED = "refused"
    SILENT = "silent"
    NO_REQUESTS = "requests are held up"
    NO_ANSWERS = "answers are held up"


class Others(StrEnum):
    """To which others a master's network breaks."""

    MASTERS = "masters"
    REST = "ZooKeeper, supervisors and clients"
    ALL = "everybody"


class Direction(StrEnum):
    BOTH = "both"
    DEAF = "it hears nothing"
    MUTE = "nobody hears it"


@dataclass(frozen=True)
class Kill:
    """kill -9, and a start after `secs`."""

    target: str
    secs: float


@dataclass(frozen=True)
class Stop:
    """A clean stop, and a start after `secs`."""

    target: str
    secs: float


@dataclass(frozen=True)
class Pause:
    target: str
    secs: float


@dataclass(frozen=True)
class Drops:
    """Connections to ZooKeeper break every 50 ms."""

    target: str
    secs: float


@dataclass(frozen=True)
class Cut:
    target: str
    way: Way
    secs: float


@dataclass(frozen=True)
class Part:
    """Packets between a master and others are silently lost."""

    target: str
    others: Others
    direction: Direction
    secs: float


@dataclass(frozen=True)
class Expire:
    """Another client ends the member's session."""

    target: str
    secs: float = 0.0


@dataclass(frozen=True)
class Flip:
    """A byte of a published bundle or its metafile changes on disk without a change of time, or the
    end of the file is cut off."""

    target: str
    secs: float = 0.0


@dataclass(frozen=True)
class Wipe:
    """kill -9, an empty disk, and a start after `secs`."""

    target: str
    secs: float


@dataclass(frozen=True)
class ClockJump:
    """The wall clock is wrong by `days` for `secs` seconds, and then right again."""

    target: str
    days: float
    secs: float


@dataclass(frozen=True)
class Full:
    """The disk takes no more bytes."""

    target: str
    secs: float


@dataclass(frozen=True)
class Forget:
    """The tree is deleted, and restored after that time from a backup made just before."""

    secs: float
    target: str = TREE


Fault = Kill | Stop | Pause | Drops | Cut | Part | Expire | Flip | Wipe | ClockJump | Full | Forget
DISK = (Flip, Wipe)


@dataclass(frozen=True)
class Event:
    at: float
    fault: Fault

    @property
    def until(self) -> float:
        return self.at + self.fault.secs


def schedule(seed: int, seconds: float) -> list[Event]:
    """Returns faults at random distances, in order of time."""
    rng = random.Random(seed)
    events: list[Event] = []
    at = 1.0
    while True:
        at = round(at + rng.uniform(0.2, 2.2), 2)
        if at >= seconds - 1.0:
            return events
        event = Event(at, _fault(rng))
        if event.until < seconds - 0.5 and _fits(event, events):
            events.append(event)


def _fault(rng: random.Random) -> Fault:
    makers: list[tuple[float, Callable[[random.Random], Fault]]] = [
        (3, lambda r: Kill(_master(r), _secs(r))),
        (2, lambda r: Kill(r.choice(SUPERVISORS), _secs(r))),
        (1, lambda r: Kill(r.choice((*SERVERS, SERVERS_LEADER)), _secs(r))),
        (1, lambda r: Stop(r.choice((LEADER, *DAEMONS)), _secs(r))),
        (3, lambda r: Pause(_master(r), _pause(r))),
        (2, lambda r: Pause(r.choice(SUPERVISORS), _pause(r))),
        (1, lambda r: Pause(r.choice((*SERVERS, SERVERS_LEADER)), _pause(r))),
        (2, lambda r: Drops(_daemon(r), _secs(r))),
        (3, lambda r: Cut(_daemon(r), r.choice(list(Way)), _secs(r))),
        (3, lambda r: Part(_master(r), r.choice(list(Others)), r.choice(list(Direction)), _secs(r))),
        (2, lambda r: Expire(_daemon(r))),
        (2, lambda r: Flip(r.choice((LEADER, *DAEMONS)))),
        (1, lambda r: Wipe(_master(r), round(SESSION_SECS + r.uniform(1.0, 3.0), 2))),
        (1, lambda r: ClockJump(_daemon(r), round(r.uniform(-1000.0, 1000.0), 1), _secs(r))),
        (2, lambda r: Full(_daemon(r), _secs(r))),
        (1, lambda r: Full(r.choice((*SERVERS, SERVERS_LEADER)), _secs(r))),
        (1, lambda r: Forget(_secs(r))),
    ]
    weights = [weight for weight, _ in makers]
    return rng.choices([make for _, make in makers], weights)[0](rng)


def _master(rng: random.Random) -> str:
    return rng.choice((LEADER, LEADER, *MASTERS))


def _daemon(rng: random.Random) -> str:
    return rng.choice((LEADER, LEADER, *DAEMONS))


def _secs(rng: random.Random) -> float:
    return round(rng.uniform(0.1, LONGEST_SECS), 2)


def _pause(rng: random.Random) -> float:
    """Half of the pauses are shorter than a session, half of them longer."""
    low, high = rng.choice(((0.2, SESSION_SECS * 0.9), (SESSION_SECS * 1.1, LONGEST_SECS)))
    return round(rng.uniform(low, high), 2)


def _fits(event: Event, events: list[Event]) -> bool:
    if isinstance(event.fault, DISK):
        disks = [other for other in events if isinstance(other.fault, DISK)]
        if any(event.at < other.until + REST_SECS for other in disks):
            return False
    if isinstance(event.fault, Forget) and any(
        event.at < other.until + FORGET_REST_SECS for other in events if isinstance(other.fault, Forget)
    ):
        return False
    running = [other for other in events if event.at <= other.until]
    if event.fault.target in SERVERS or event.fault.target == SERVERS_LEADER:
        # One server may go while another one is away. There is no quorum then, but only for a short
        # time.
        away = [other for other in events if other.fault.target.startswith("zookeeper")]
        return len([other for other in away if event.at <= other.until + SESSION_SECS]) < 2
    return event.fault.target not in {other.fault.target for other in running}
