"""What a room tells its daemon: the operations it serves and the loops it runs.

A room is one folder of a daemon. One function in its `room.py` builds it from the few things that
it needs, and returns a `Room`, or a subclass that also holds what other rooms use.
Always: a daemon serves the routers of its rooms in the order in which it names the rooms.
Never: start a loop while a room is built; the daemon does, when the loop's `when` has come.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec

from torrentdist.host.http.operation import Router
from torrentdist.host.process.background_loops import Background, Run


class When(StrEnum):
    """When a daemon starts a loop."""

    STARTED = "started"
    """The daemon serves. ZooKeeper may not have answered yet."""
    MIRRORED = "mirrored"
    """The records are known. The cluster may not be founded yet."""
    REGISTERED = "registered"
    """The cluster knows this daemon."""


class Loop(msgspec.Struct, frozen=True):
    name: str
    run: Run
    when: When = When.STARTED
    ends_daemon: bool = False
    """Whether its failure ends the daemon. Otherwise it begins anew."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    routers: Sequence[Router] = ()
    outside: Sequence[Router] = ()
    """What a supervisor serves to other hosts. It serves `routers` to its own host alone."""
    loops: Sequence[Loop] = ()


def start_loops(rooms: Iterable[Room], when: When, background: Background) -> None:
    """Starts the loops of all rooms whose time has come."""
    for room in rooms:
        for loop in room.loops:
            if loop.when is when and loop.ends_daemon:
                background.spawn(loop.name, loop.run())
            elif loop.when is when:
                background.repeat(loop.name, loop.run)
