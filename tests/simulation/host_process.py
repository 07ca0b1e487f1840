"""The process and host that code runs in. A context variable names it, so that a task, a timer and
a thread belong to the daemon that began them.

Always: nothing of a process runs once it is dead, and nothing of a paused process runs until it
goes on.
"""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulation.lost_names import Names


@dataclass(eq=False)
class HostProcess:
    name: str
    address: str
    alive: bool = True
    tasks: list[asyncio.Task[object]] = field(default_factory=list)
    """Every task that it began. A dead task is kept, since Python would run its `finally`."""
    calls: int = 0
    """Requests to ZooKeeper and calls in threads that it has begun."""
    at_death: list[Callable[[], object]] = field(default_factory=list)
    locks: set[int] = field(default_factory=set)
    """Descriptors that it locked. The kernel would release them at its end."""
    effects_left: int | None = None
    """It dies after this many more effects on the disk. None: it does not."""
    fails_after: int | None = None
    """A call to the disk fails once after this many others. None: none does."""
    writes_left: int | None = None
    """It dies at ZooKeeper's write after this many more. None: it does not."""
    dies_unsent: bool = False
    """Whether that write never leaves it. Otherwise the server makes it, and nobody hears."""
    release: int = 0
    """The newest schema of records that it reads. 0: this release's."""
    wall_skew: float = 0.0
    wall_drift: float = 0.0
    """How many seconds its wall clock gains in each."""
    disk: str = ""
    """`full`: the disk refuses every write. `broken`: it answers each with EIO. `read-only`: with
    EROFS. `slow`: each call takes a second."""
    rots: bool = False
    """Whether a bit has turned on this disk. Bytes that were verified can be wrong then."""
    names: Names | None = None
    """Follows what a loss of power would undo on this disk. None: the story has none."""
    held: list[Callable[[], None]] | None = None
    """What a paused process has to do when it goes on. None: it is not paused."""

    def context(self) -> Context:
        """Returns a context in which this process is the current one."""
        context = copy_context()
        context.run(HERE.set, self)
        return context

    def die(self) -> None:
        """Ends the process as `kill -9` does: nothing of it runs any more."""
        if not self.alive:
            return
        self.alive = False
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        for fd in self.locks:
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)
        for tell in self.at_death:
            tell()

    def count_write(self) -> None:
        """Counts a write to ZooKeeper, which may be the last of this process."""
        if self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left < 0:
                self.die()
                raise Died


class Died(BaseException):
    """The process ended at this effect. Nothing that it would still do has an effect."""


NOBODY = HostProcess("story", "10.0.0.250")
HERE: ContextVar[HostProcess] = ContextVar("HERE", default=NOBODY)
