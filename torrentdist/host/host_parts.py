"""The parts that everything in a host's runtime uses: store, engine, event log, and a way to
announce."""

from collections.abc import Callable
from typing import Final

import msgspec

from torrentdist.host.host_store import HostStore
from torrentdist.host.telemetry.event_log import EventLog
from torrentdist.swarm.engine.engine import Engine

AT_ONCE: Final = 0.0
ENTERED_SECS: Final = 0.05
"""When masters hear that this host has entered a swarm. A tiny bundle has arrived by then, and they
hear only that."""
LEFT_SECS: Final = 0.5
"""When masters hear that this host has left a swarm. Nobody waits for that, so it usually travels
with other news."""


class HostParts(msgspec.Struct, frozen=True):
    store: HostStore
    engine: Engine
    events: EventLog
    tell_masters: Callable[[float], None]
    """Announces this host's swarms within a number of seconds, because something has changed."""
