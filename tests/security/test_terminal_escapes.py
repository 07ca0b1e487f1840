"""Output of jobs, and names from other hosts, never control a user's terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytestmark = pytest.mark.case("F13")

HOSTILE = b"\x1b]0;owned\x07 \x1b[2J\rnothing here\x9b31m \xc2\x9b31m \xe2\x80\xae txt\ttabbed"
STEERING = (b"\x1b", b"\x07", b"\x9b", "\u202e".encode())


class OneJob(BaseHTTPRequestHandler):
    """A master and the host of job `j` in one, by its answers."""

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        url = f"http://{self.headers['Host']}"
        host = {"host": "h", "gateway": "", "slots": 1, "slots_used": 0, "labels": {}, "bundles": 0, "version": "0"}
        counts = {"total": 0, "available": 0, "uploading": 0, "lost": 0, "under_replicated": 0}
        known: dict[str, Any] = {
            "/v1/cluster": {
                "leader": None,
                "epoch": 1,
                "masters": [],
                "supervisors": [{**host, "id": "h1", "uptime_secs": 1.0, "url": url}],
                "jobs": ["j"],
                "bundles": counts,
            },
            "/v1/jobs/j": {
                "id": "j",
                "name": "j",
                "status": "finished",
                "bundle": "b",
                "dependencies": [],
                "wanted": 1,
                "workers": [],
                "created_at": 0.0,
            },
            "/v1/host/jobs/j/logs": [
                {"worker": 0, "stream": "stdout", "begin": 0, "end": len(HOSTILE) + 1, "at": 1.0, "here": False}
            ],
        }
        body = json.dumps(known[path]).encode() if path in known else HOSTILE + b"\n"
        part = int((re.findall(r"offset=(\d+)", self.path) or ["0"])[0])
        body = body[part:]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Offset", str(part))
        self.send_header("X-Next-Offset", str(len(HOSTILE) + 1))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), OneJob)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def on_a_terminal(*command: str) -> bytes:
    """Returns what the program sends to a terminal that is its stdout and stderr."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs)
    finally:
        os.close(theirs)
    sent = b""
    try:
        while part := os.read(ours, 65536):
            sent += part
    except OSError:  # the program has ended
        pass
    finally:
        os.close(ours)
        process.wait(60)
    return sent


@pytest.mark.parametrize("arguments", [(), ("-q",), ("-o", "json"), ("-o", "jsonl")])
def test_job_logs_show_escapes_to_a_terminal(url: str, arguments: tuple[str, ...]) -> None:
    """A job could clear the operator's screen, retitle it, or have it answer with keystrokes."""
    logs = ("job", "logs", "j", "--masters", url, *arguments)
    sent = on_a_terminal(sys.executable, "-m", "torrentdist_cli", *logs)

    assert b"nothing here" in sent, sent
    assert [] == [steers for steers in STEERING if steers in sent]
    assert b"\r" not in sent.replace(b"\r\n", b"\n")


def test_job_logs_give_a_program_what_the_job_printed(url: str) -> None:
    """A pipe would get other bytes than the job wrote."""
    logs = (sys.executable, "-m", "torrentdist_cli", "job", "logs", "j", "--masters", url)
    bare, view = (subprocess.run([*logs, *more], capture_output=True, check=True) for more in (["-q"], ["-o", "jsonl"]))

    assert HOSTILE + b"\n" == bare.stdout
    assert HOSTILE.decode(errors="replace") == json.loads(view.stdout)["line"]


@pytest.mark.parametrize("call", ["put(text)", "put_value(text)", "say(text)", "say_all(text)", "put_data(data)"])
def test_every_way_to_the_terminal_is_closed_to_escapes(call: str) -> None:
    """The name of a bundle, a host or a file could steer the terminal."""
    program = f"""
import json
from torrentdist_cli.frame.terminal import put, put_data, put_value, say, say_all
text = {HOSTILE.decode(errors="surrogateescape")!r}
data = json.dumps(text.encode(errors="replace").decode(), ensure_ascii=False).encode()
{call}
"""
    sent = on_a_terminal(sys.executable, "-c", program)

    assert b"owned" in sent, sent
    assert [] == [steers for steers in STEERING if steers in sent]
