"""The parts that everything in a host's runtime uses: store, engine, event log, and a way to
announce."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torrentdist.host.host_store import HostStore
from torrentdist.host.telemetry.event_log import EventLog
from torrentdist.swarm.engine.engine import Engine


@dataclass(frozen=True, slots=True)
class HostParts:
    store: HostStore
    engine: Engine
    events: EventLog
    tell_masters: Callable[[], None]
    """Announces this host's swarms to the masters at once, because something has changed."""
