"""`torrentdist top` and --watch against a real cluster, for a program and on a terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from cluster_fixtures import Cluster, make_source, until

LEAVES = b"\x1b[?1049l"
"""What a terminal is sent when the picture gives its screen back."""


class OnTerminal:
    """A command on a terminal of its own. It is ended as by Ctrl-C."""

    def __init__(self, cluster: Cluster, *arguments: str) -> None:
        self.seen = b""
        self._master, slave = pty.openpty()
        command = [sys.executable, "-m", "torrentdist_cli", "--config", str(cluster.dir / "client.toml"), *arguments]
        env = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
        self._process = subprocess.Popen(command, stdout=slave, stderr=slave, stdin=slave, env=env)
        os.close(slave)
        os.set_blocking(self._master, False)

    def read(self) -> bytes:
        try:
            while chunk := os.read(self._master, 65536):
                self.seen += chunk
        except OSError:
            pass
        return self.seen

    def shows(self, text: str) -> None:
        until(lambda: text.encode() in self.read(), f"the terminal shows {text!r}", 30.0)

    def end(self) -> int:
        self._process.send_signal(signal.SIGINT)
        until(lambda: self.read() and self._process.poll() is not None, "the command has ended")
        self._process.kill()
        code = self._process.wait()
        self.read()
        os.close(self._master)
        return code


@pytest.fixture
def slow_bundle(cluster: Cluster, tmp_path: Path) -> str:
    """A bundle that is being distributed for minutes."""
    cluster.upload(make_source(tmp_path / "src", 77, 3_000_000), "for-top", replicas=1)
    cluster.run("bundle", "distribute", "for-top", "--rate", "10k", "--wait", "0").ok()
    return "for-top"


def test_a_terminal_shows_what_happens_until_ctrl_c(cluster: Cluster, slow_bundle: str) -> None:
    """If this fails, an operator without a browser sees nothing live, or is left with a broken
    terminal."""
    top = OnTerminal(cluster, "top", "--every", "0.5")
    top.shows(slow_bundle)
    code = top.end()
    watched = OnTerminal(cluster, "bundle", "show", slow_bundle, "--watch")
    watched.shows("available")
    watched_code = watched.end()
    program = cluster.run("top").ok()
    cluster.run("bundle", "cancel", slow_bundle).ok()

    assert (0, 0) == (code, watched_code)
    assert LEAVES in top.seen
    assert [slow_bundle] == [one["bundle"] for one in program["distributions"]]
    assert (3, 2) == (program["masters"], program["supervisors"])


def test_a_program_that_watches_gets_whole_answers(cluster: Cluster, tmp_path: Path) -> None:
    """If this fails, a script that follows a bundle reads half answers, or never hears of a
    change."""
    cluster.upload(make_source(tmp_path / "src", 78), "watched", replicas=1)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "torrentdist_cli", "--config", str(cluster.dir / "client.toml")]
    with out.open("wb") as file:
        watching = subprocess.Popen([*command, "bundle", "show", "watched", "--watch", "-o", "jsonl"], stdout=file)
    until(lambda: '"pinned":false' in out.read_text(), "the first answer is written")
    cluster.run("bundle", "pin", "watched").ok()
    until(lambda: '"pinned":true' in out.read_text(), "the change is written")
    watching.send_signal(signal.SIGINT)
    code = watching.wait(20)
    lines = [msgspec.json.decode(line) for line in out.read_text().splitlines()]

    assert 0 == code
    assert [False, True] == [line["pinned"] for line in lines]
