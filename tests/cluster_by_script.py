"""A cluster for tests of commands that is only its HTTP protocol: it gives the answers that a test
writes down."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, MasterId
from torrentdist.model.records import BundleState
from torrentdist.model.wire.bundle_messages import BundleView

Answers = dict[str, object]

DIGEST = Digest("ab" * 32)
BUNDLE = BundleView(
    id=BundleId("etl-42"),
    digest=DIGEST,
    size=1536,
    files=3,
    replicas=2,
    min_replicas=2,
    holders=[MasterId("m1"), MasterId("m2")],
    created_at=1.0,
    state=BundleState.AVAILABLE,
    pinned=False,
)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Answers]:
    """A master and a supervisor that answer `METHOD /path` with what the test puts here: a view,
    bytes or an error. `asked` has every request with its query and body."""
    asked: list[str] = []
    routes: Answers = {"asked": asked}

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            asked.append(f"{self.command} {self.path} {content.decode(errors='replace')}".strip())
            found = routes.get(f"{self.command} {self.path.partition('?')[0]}")
            if found is None:
                found = TorrentdistError("bundle_not_found", id=self.path)
            status = found.http_status if isinstance(found, TorrentdistError) else 200
            wire = found.to_wire() if isinstance(found, TorrentdistError) else found
            body = wire if isinstance(wire, bytes) else msgspec.json.encode(wire)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if isinstance(found, bytes):
                self.send_header("X-Digest", str(routes["digest"]))
            if "stale" in routes:
                self.send_header("X-Stale", str(routes["stale"]))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = _answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setenv("TORRENTDIST_MASTERS", url)
    monkeypatch.setenv("TORRENTDIST_CLIENT_SUPERVISOR", url)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    yield routes
    server.shutdown()
    server.server_close()
    thread.join()
