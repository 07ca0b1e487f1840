"""A small OpenTelemetry collector: it takes spans by OTLP over HTTP, and keeps them for a test to
look at."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class SeenSpan(NamedTuple):
    """A span as a collector sees it."""

    name: str
    trace: str
    id: str
    parent: str
    links: tuple[tuple[str, str], ...]
    service: str
    began: float
    ended: float
    attributes: dict[str, Any]
    error: str


class TraceCollector:
    """Listens at `url` until it is closed. Each request waits until `answers` is set."""

    def __init__(self) -> None:
        self.asked = 0
        """How many requests have begun."""
        self.bodies: list[bytes] = []
        self.answers = threading.Event()
        self.answers.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.asked += 1
                is_known = self.path == "/v1/traces"
                collector.answers.wait()
                if is_known:
                    collector.bodies.append(body)
                with contextlib.suppress(OSError):  # The sender may have given up.
                    self.send_response(200 if is_known else 404)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def close(self) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def spans(self, bundle: str = "") -> list[SeenSpan]:
        """Returns the spans of a bundle, or all of them, in the order in which they began."""
        found = [span for body in [*self.bodies] for span in decoded(body)]
        wanted = [span for span in found if bundle in ("", span.attributes.get("torrentdist.bundle"))]
        return sorted(wanted, key=lambda span: span.began)


@contextlib.contextmanager
def trace_collector() -> Iterator[TraceCollector]:
    collector = TraceCollector()
    try:
        yield collector
    finally:
        collector.close()


def decoded(body: bytes) -> Iterator[SeenSpan]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = {pair.key: pair.value.string_value for pair in resource.resource.attributes}["service.name"]
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield SeenSpan(
                    name=span.name,
                    trace=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                    service=service,
                    began=span.start_time_unix_nano / 1e9,
                    ended=span.end_time_unix_nano / 1e9,
                    attributes={
                        pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value")
                        for pair in span.attributes
                    },
                    error=span.status.message,
                )
