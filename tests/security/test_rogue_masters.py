"""Servers that pretend to be masters: they get no token that was not meant for them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from cluster_fixtures import Cluster, running_cluster

pytestmark = pytest.mark.case("F4")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(work=tmp_path_factory.mktemp("guarded"), masters=2, supervisors=0) as cluster:
        yield cluster


class Rogue(ThreadingHTTPServer):
    """Answers every request alike, or passes it on, and remembers what it was sent."""

    daemon_threads = True

    def __init__(self, leader: str = "", real: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.leader = leader
        self.real = real
        """The master that requests are passed on to."""
        self.seen: list[tuple[str, str]] = []
        """Path and Authorization of each request."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def tokens(self) -> list[str]:
        return [token for _, token in self.seen if token]


class _Handler(BaseHTTPRequestHandler):
    server: Rogue

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers.get("Authorization", "")))
        status, body = self._answer()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_PUT = do_DELETE = do_GET

    def _answer(self) -> tuple[int, bytes]:
        if self.server.real:
            headers = {"Authorization": self.headers["Authorization"]} if "Authorization" in self.headers else {}
            told = httpx.get(self.server.real + self.path, headers=headers, trust_env=False, timeout=60.0)
            return told.status_code, told.content
        refusal = {"error": "not_leader", "message": "not me", "hint": "", "fields": {}}
        names = {"leader": self.server.leader, "masters": [self.server.leader]}
        return 421, json.dumps({**refusal, **names}).encode()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(rogue: Rogue) -> Iterator[Rogue]:
    thread = threading.Thread(target=rogue.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield rogue
    finally:
        rogue.shutdown()
        thread.join()
        rogue.server_close()


@pytest.mark.parametrize("relays", [False, True])
def test_a_server_that_only_an_answer_names_gets_no_token(guarded: Cluster, relays: bool) -> None:
    """A master's `not_leader` was enough to send the token to any address, even where the server
    passes the question for its proof on to a real master.
    """
    thief = Rogue(real=guarded.url(guarded.leader()) if relays else "")
    with serving(thief), serving(Rogue(leader=thief.url)) as rogue:
        ran = guarded.run("bundle", "pin", "x", client__masters=rogue.url, client__deadline_secs=2)

    assert 5 == ran.code
    assert rogue.tokens
    assert [] == thief.tokens
    assert "/v1/proof" in {path.partition("?")[0] for path, _ in thief.seen}


@pytest.mark.parametrize("role", ["reader", "operator"])
def test_a_leader_that_only_an_answer_names_is_followed(guarded: Cluster, tmp_path: Path, role: str) -> None:
    """A client that knows one standby could change nothing any more."""
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(guarded.run("token", "create", f"some-{role}", "--role", role).ok()["token"])
    (standby,) = guarded.standbys()
    one = guarded.url(standby)
    ran = guarded.run("bundle", "pin", "none-such", client__masters=one, client__token_file=token)

    assert (3 if role == "operator" else 4) == ran.code
    assert "[bundle_not_found]" in ran.stderr or "[role_needed]" in ran.stderr
