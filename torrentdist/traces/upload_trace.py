"""The client's span of an upload, which begins the bundle's trace.

Always: without traces.endpoint nothing is made, and nothing of OpenTelemetry is imported.
Never: fail an upload, or delay its end by more than CLOSE_SECS.
"""

import asyncio
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from torrentdist.model.configuration.config import TracesConfig
from torrentdist.model.ids import BundleId, Digest
from torrentdist.traces.spans import SpanPlace, TraceSpan, about, header_of, is_kept, span_of, trace_of

UPLOAD = "upload"


class UploadTrace:
    """The span of one upload, while it runs."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._began, self._clock = time.time(), time.monotonic()
        self._place: SpanPlace | None = None
        self._attributes: dict[str, str | int | float] = {}

    def begun(self, bundle: BundleId, digest: Digest, size: int) -> str:
        """Notes what is uploaded. Returns the header that names the span; empty if its trace is not
        kept."""
        trace = trace_of(bundle, digest)
        if not is_kept(trace, self._share):
            return ""
        self._place = span_of(trace, UPLOAD, secrets.token_hex(8))
        self._attributes = {
            **about(bundle, digest, size),
            "torrentdist.host": socket.gethostname(),
        }
        return header_of(self._place)

    def ended(self, error: str = "") -> TraceSpan | None:
        """Returns the span; None: nothing was uploaded, or its trace is not kept."""
        if self._place is None:
            return None
        return TraceSpan(
            name=UPLOAD,
            place=self._place,
            parent=None,
            began=self._began,
            ended=self._began + time.monotonic() - self._clock,
            attributes=self._attributes,
            error=error,
        )


@asynccontextmanager
async def traced_upload(config: TracesConfig) -> AsyncIterator[UploadTrace | None]:
    """Yields the trace of an upload, and sends its span at the end. None: there are no traces."""
    if not config.endpoint:
        yield None
        return
    trace, error = UploadTrace(config.sample), ""
    try:
        yield trace
    except BaseException as exc:
        error = getattr(exc, "code", None) or type(exc).__name__
        raise
    finally:
        span = trace.ended(error)
        if span is not None:
            await asyncio.shield(asyncio.to_thread(_send, config, span))


def _send(config: TracesConfig, span: TraceSpan) -> None:
    from torrentdist.traces.span_exporter import SpanExporter

    exporter = SpanExporter(config, "torrentdist-client", socket.gethostname())
    exporter.add(span)
    exporter.close()
