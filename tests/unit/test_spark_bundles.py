"""Bundles in Python programs, with a gateway of a few lines."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from torrentdist.model.configuration.settings import load
from torrentdist.model.errors import TorrentdistError
from torrentdist.spark import bundle_path
from torrentdist.spark.bundles import TOLD, _known, error_in


class Gateway(BaseHTTPRequestHandler):
    asked: list[str]
    path_told: Path

    def do_POST(self) -> None:
        self.asked.append(self.path)
        if "/nope/" in self.path:
            error = TorrentdistError("bundle_not_found", id="nope")
            self._answer(error.http_status, error.to_wire())
        else:
            self._answer(200, {"state": "fetching"})

    def do_GET(self) -> None:
        self._answer(200, {"state": "done", "path": str(self.path_told)})

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[str]:
    _known.clear()
    Gateway.asked, Gateway.path_told = [], tmp_path
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_bundle_is_fetched_and_its_place_told(gateway: str, tmp_path: Path) -> None:
    """A task would look into a directory that is not there yet, or ask the gateway for each of its
    rows."""
    found = [bundle_path("model-7", gateway=gateway) for _ in range(2)]

    assert [tmp_path, tmp_path] == found
    assert ["/v1/host/bundles/model-7/fetch"] == Gateway.asked


def test_the_gateway_of_a_worker_is_the_one_it_was_told(
    gateway: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job on a host with another port would find no gateway."""
    monkeypatch.setenv("TORRENTDIST_GATEWAY", gateway)

    assert tmp_path == bundle_path("model-7")
    assert load(cwd=tmp_path).config.client.masters  # what a worker is told is no unknown setting


@pytest.mark.parametrize(("bundle", "code"), [("nope", "bundle_not_found"), ("../etc", "invalid_id")])
def test_what_is_wrong_is_our_error(gateway: str, bundle: str, code: str) -> None:
    """A task would fail with a number and a URL only."""
    with pytest.raises(TorrentdistError) as caught:
        bundle_path(bundle, gateway=gateway)

    assert code == caught.value.code


def test_a_user_who_may_not_read_bundles_is_told_the_setting(gateway: str, tmp_path: Path) -> None:
    """A task would fail with a permission, and nobody would know what to change."""
    Gateway.path_told = tmp_path / "closed"
    with pytest.raises(TorrentdistError) as caught:
        bundle_path("model-7", gateway=gateway)

    assert ("not_a_reader", True) == (caught.value.code, "store.readable_by" in caught.value.hint)


def test_a_host_without_a_supervisor_says_so() -> None:
    """A task on such a host would fail with a refused connection, and no hint of what refused
    it."""
    with pytest.raises(TorrentdistError, match=r"the supervisor at http://127\.0\.0\.1:9 does not answer"):
        bundle_path("model-8", gateway="http://127.0.0.1:9")


def test_what_a_task_of_connect_was_told_is_our_error() -> None:
    """`add_bundle(spark, "nope")` said `HTTP Error 404: Not Found` in a page of Java's and Python's
    stack traces."""
    body = json.dumps(TorrentdistError("bundle_not_found", id="nope").to_wire())
    found = error_in(f"Job aborted: Traceback ...\n  RuntimeError: {TOLD}{body}\n\tat org.apache.spark ...")

    assert found is not None
    assert ("bundle_not_found", "there is no bundle 'nope'") == (found.code, found.message)
    assert (None, None) == (error_in("Job aborted: no space left"), error_in(f"cut {TOLD}{body[:20]}"))
