"""What all parts of a host's runtime share: its store, its engine, its log of events, and the way
to tell masters."""

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
    """Announces this host's swarms to the masters at once, because something changed."""
