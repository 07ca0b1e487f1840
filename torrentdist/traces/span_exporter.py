"""Sends spans to an OpenTelemetry collector, in a thread of its own.

Always: at most MOST_WAITING spans wait. One that finds no room, or that the collector does not
take, is dropped and counted.
Never: make the caller wait, or fail it. Without an endpoint nothing of OpenTelemetry is imported.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Final

from torrentdist import __version__
from torrentdist.log import get_logger
from torrentdist.model.backoff import Retry
from torrentdist.model.configuration.config import TracesConfig
from torrentdist.traces.spans import SpanPlace, TraceSpan

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

log = get_logger()

MOST_WAITING: Final = 2048
MOST_AT_ONCE: Final = 512
GATHER_SECS: Final = 1.0
"""How long the first span of a batch waits for others."""
SEND_SECS: Final = 5.0
CLOSE_SECS: Final = 2.0
"""How long the end of a process waits for the collector."""
EXTRA: Final = "torrentdist[traces]"

Send = Callable[[Sequence[TraceSpan]], bool]
"""Sends spans. Returns whether the collector took them."""


class SpanExporter:
    """`service` and `host` name the sender of all spans."""

    def __init__(self, config: TracesConfig, service: str, host: str) -> None:
        self._sender = config.url, service, host
        self._queue: Queue[TraceSpan | None] = Queue(MOST_WAITING)
        self._trouble = Retry(1.0, 1.0)
        self._refused = self._lost = 0  # counted by the callers and by the thread
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """The number of spans that were not sent."""
        return self._refused + self._lost

    def add(self, span: TraceSpan) -> None:
        """Sends a span soon, or drops it."""
        try:
            self._queue.put_nowait(span)
        except Full:
            self._refused += 1

    def close(self, secs: float = CLOSE_SECS) -> None:
        """Waits until what was added is sent, for at most `secs` seconds."""
        try:
            self._queue.put_nowait(None)
        except Full:
            return  # The collector is far behind.
        self._thread.join(secs)

    def _run(self) -> None:
        send: Send | None = None
        try:
            send = _open_otlp(*self._sender)
        except ImportError as exc:
            log.warning("no traces are sent: a package is missing", install=EXTRA, reason=str(exc))
        is_open = True
        while is_open:
            batch, is_open = self._next_batch()
            if batch and (send is None or not self._sent(send, batch)):
                self._lost += len(batch)

    def _next_batch(self) -> tuple[list[TraceSpan], bool]:
        """Waits for spans. Returns them, and whether there will be more."""
        batch: list[TraceSpan] = []
        until = 0.0
        while len(batch) < MOST_AT_ONCE:
            try:
                span = self._queue.get(timeout=max(0.0, until - time.monotonic()) if batch else None)
            except Empty:
                break
            if span is None:
                return batch, False
            if not batch:
                until = time.monotonic() + GATHER_SECS
            batch.append(span)
        return batch, True

    def _sent(self, send: Send, batch: list[TraceSpan]) -> bool:
        try:
            taken, reason = send(batch), "it does not answer, or refuses them"
        except Exception as exc:  # Whatever the library meets, the daemon goes on.
            taken, reason = False, f"{type(exc).__name__}: {exc}"
        if taken:
            self._trouble.succeeded()
        elif self._trouble.failed(reason):
            log.warning("the collector does not take traces", url=self._sender[0], reason=reason)
        return taken


def _open_otlp(url: str, service: str, host: str) -> Send:
    """Returns what sends spans by OTLP over HTTP. Raises ImportError without the extra."""
    from opentelemetry.exporter.otlp.proto.http import trace_exporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExportResult

    own_thread = threading.get_ident()
    # Each retry would be a line in the log, and this module says once what is wrong.
    logging.getLogger(trace_exporter.__name__).addFilter(lambda record: record.thread != own_thread)
    exporter = trace_exporter.OTLPSpanExporter(endpoint=url, timeout=SEND_SECS)
    resource = Resource(
        {
            "service.namespace": "torrentdist",
            "service.name": service,
            "service.instance.id": host,
            "service.version": __version__,
        }
    )

    def send(spans: Sequence[TraceSpan]) -> bool:
        return exporter.export([_readable(span, resource) for span in spans]) is SpanExportResult.SUCCESS

    return send


def _readable(span: TraceSpan, resource: Resource) -> ReadableSpan:
    """Returns the span as OpenTelemetry's library has it."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link
    from opentelemetry.trace.status import Status, StatusCode

    parent = None if span.parent is None else SpanPlace(span.place.trace_id, span.parent)
    return ReadableSpan(
        name=span.name,
        context=_context(span.place),
        parent=None if parent is None else _context(parent),
        resource=resource,
        attributes=dict(span.attributes),
        links=[] if span.link is None else [Link(_context(span.link))],
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
        start_time=int(span.began * 1e9),
        end_time=int(span.ended * 1e9),
        instrumentation_scope=InstrumentationScope("torrentdist", __version__),
    )


def _context(place: SpanPlace) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(place.trace_id, place.span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
