"""Ctrl-C and SIGTERM: the first stops cleanly and says how to go on, the second stops at once."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

STUBBORN = """
import asyncio, sys
from torrentdist_cli.frame.asking_masters import run

async def stay():
    while True:
        try:
            print("ready", flush=True)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

sys.argv = ["torrentdist", "upload", "my dir"]
run(stay())
"""


@pytest.fixture
def silent_master() -> Iterator[tuple[str, threading.Event]]:
    """A master that accepts a connection and never answers. The event says that it has accepted
    one."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as kept:
        asked = threading.Event()

        def take() -> None:
            connection, _ = server.accept()
            kept.enter_context(connection)
            connection.recv(1)
            asked.set()

        threading.Thread(target=take, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", asked


@contextlib.contextmanager
def started(*args: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"])
def test_the_first_signal_stops_cleanly_and_says_how_to_go_on(
    silent_master: tuple[str, threading.Event], number: signal.Signals, code: int
) -> None:
    """A command that ends with a traceback, or without a hint, would leave its user with half a
    transfer."""
    url, asked = silent_master
    with started("-m", "torrentdist_cli", "--masters", url, "bundle", "show", "etl-42") as process:
        assert asked.wait(20)
        process.send_signal(number)
        out, err = process.communicate(timeout=20)

    assert (process.returncode, out) == (code, "")
    assert "error[interrupted]: " in err
    assert f"torrentdist --masters {url} bundle show etl-42" in err
    assert "Traceback" not in err


def test_the_second_ctrl_c_stops_at_once() -> None:
    """A command that hangs while it cleans up must still be stoppable from the keyboard."""
    with started("-c", STUBBORN) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        # It repeats the message once it has taken the first signal.
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=4)

    assert process.returncode == 130
    assert "go on with: torrentdist upload 'my dir'" in err


def test_a_command_that_cannot_stop_is_ended_after_a_while() -> None:
    """If this fails, a service manager that sends SIGTERM once waits for ever."""
    impatient = "import torrentdist_cli.frame.asking_masters\ntorrentdist_cli.frame.asking_masters.STOP_SECS = 0.3\n"
    with started("-c", impatient + STUBBORN) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)

    assert process.returncode == 143


SKOPEO = """#!/bin/sh
for last; do :; done
layout=${last#oci:}
mkdir "${layout%:*}"
echo $$ > "${layout%:*}/pid"
mv "${layout%:*}/pid" "$BEGUN"
exec sleep 60
"""
"""Begins a copy, notes its process in the file BEGUN, and gets no further."""


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which SKOPEO, the only skopeo on the PATH, notes its process."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "skopeo").write_text(SKOPEO)
    (tmp_path / "bin" / "skopeo").chmod(0o755)
    (tmp_path / "images" / "torrentdist-import-left" / "layout").mkdir(parents=True)
    os.utime(tmp_path / "images" / "torrentdist-import-left", (0, 0))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "images"))
    monkeypatch.setenv("BEGUN", str(tmp_path / "begun"))
    return tmp_path / "begun"


def test_an_import_that_is_stopped_leaves_no_image(begun: Path) -> None:
    """A stopped import would leave a whole image on the disk for ever, and skopeo would go on. So
    would one that was killed, although another import runs later."""
    with started("-m", "torrentdist_cli", "image", "import", "docker://h/app:1", "app:1") as process:
        deadline = time.monotonic() + 20
        while not begun.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        (there,) = (begun.parent / "images").iterdir()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)

    assert 143 == process.returncode
    assert "torrentdist-import-left" != there.name
    assert [] == list((begun.parent / "images").iterdir())
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)
