"""The traces of one daemon: its events become spans, and go to the collector.

Always: without traces.endpoint it hears no event, starts no thread and imports nothing of
OpenTelemetry.
Never: fail or delay what an event reports.
"""

import asyncio
import time
from collections.abc import Callable

from torrentdist.host.telemetry.event_log import EventLog
from torrentdist.model.configuration.config import TracesConfig
from torrentdist.model.events import Fact
from torrentdist.model.wire.swarm_messages import PeerRole
from torrentdist.traces.event_spans import EventSpans
from torrentdist.traces.span_exporter import SpanExporter


class EventTraces:
    """`clock` returns ZooKeeper's time, by which the spans of all hosts agree, or None while it is
    not known."""

    def __init__(self, config: TracesConfig, role: PeerRole, node: str, clock: Callable[[], float | None]) -> None:
        self._clock = clock
        self._spans = EventSpans(node, is_master=role is PeerRole.MASTER, share=config.sample)
        self._exporter = SpanExporter(config, f"torrentdist-{role.value}", node) if config.endpoint else None

    @property
    def dropped(self) -> int:
        """The number of spans that were not sent."""
        return 0 if self._exporter is None else self._exporter.dropped

    def follow(self, events: EventLog) -> None:
        """Makes spans of all events from now on."""
        if self._exporter is not None:
            events.subscribe(self._hear)

    async def close(self) -> None:
        if self._exporter is not None:
            await asyncio.to_thread(self._exporter.close)

    def _hear(self, fact: Fact) -> None:
        span = self._spans.of_event(fact, self._clock() or time.time())
        if span is not None and self._exporter is not None:
            self._exporter.add(span)
