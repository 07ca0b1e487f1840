"""The simulation itself: it repeats to the byte, and its plainest stories go well."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from simulation.found_stories import found_stories
from simulation.simulated_engine import SimulatedEngine
from simulation.story_runner import is_mistake

from torrentdist.host.process.background_loops import LOOP_FAILED
from torrentdist.http.api_calls import Broken
from torrentdist.model.errors import TorrentdistError
from torrentdist.swarm.engine.engine import Engine

ROOT = Path(__file__).parent.parent.parent


def simulate(*arguments: str, hash_seed: str = "0") -> tuple[int, str]:
    """Returns how `make simulate` ends, and what it prints. Each story runs in a process of its
    own."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT}/tests", "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "simulation.run", *arguments]
    ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    return ran.returncode, ran.stdout


def test_the_simulated_engine_has_the_interface_of_the_real_one() -> None:
    """If this fails, every daemon of every story fails when it calls what is missing."""
    real, simulated = ({name for name in vars(kind) if name[0] != "_"} for kind in (Engine, SimulatedEngine))
    set_at_start = {"host", "port", "tls_port", "on_entered"}

    assert real <= simulated | set_at_start


@pytest.mark.parametrize(
    ("event", "error", "is_told"),
    [
        (LOOP_FAILED, TorrentdistError("not_leader"), True),
        (LOOP_FAILED, Broken("no answer", sent=False), True),
        (LOOP_FAILED, ZeroDivisionError(), True),
        (LOOP_FAILED, TorrentdistError("closing", what="it"), False),
        (LOOP_FAILED, OSError(5, "EIO"), False),
        ("a fetch failed", ZeroDivisionError(), True),
        ("a fetch failed", TorrentdistError("not_leader"), False),
        ("a fetch failed", Broken("no answer", sent=False), False),
    ],
)
def test_a_story_finds_mistakes_that_a_daemon_logs(event: str, error: Exception, is_told: bool) -> None:
    """If this fails, no story finds a loop of a daemon that fails for ever, or each story finds
    what its own faults did."""
    assert is_told is is_mistake(event, error)


def test_a_story_repeats_to_the_byte() -> None:
    """If this fails, the seed of a night that found something does not find it again. It takes
    long, because it runs whole clusters for minutes of their time."""
    arguments = ("--story", "night", "--seed", "3", "--count", "1", "--trace", "--whole")
    lines = [
        [line for line in simulate(*arguments, hash_seed=seed)[1].splitlines() if line.startswith("seed")]
        for seed in ("0", "4711")
    ]

    assert lines[0]
    assert lines[0] == lines[1]


def test_what_was_found_stays_fixed() -> None:
    """If this fails, an error that a story once found is back. It takes long, because it runs a
    whole cluster for minutes of its time, for each of them."""
    code, said = simulate("--found", "all", "--whole")

    assert code == 0, said
    assert f"\n{len(found_stories())} stories" in said


def test_a_run_that_is_ended_leaves_nothing(tmp_path: Path) -> None:
    """If this fails, nights that a timeout ends fill the disk."""
    env = {**os.environ, "PYTHONPATH": f"{ROOT}/tests", "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "simulation.run", "--count", "100000"]
    run = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
    stories, deadline = Path(f"/proc/{run.pid}/task/{run.pid}/children"), time.monotonic() + 60.0
    while not stories.read_text() and time.monotonic() < deadline:  # Their files are in a namespace of their own.
        time.sleep(0.001)  # It is ended while it forks, if chance wills it.
    there = list(tmp_path.iterdir())
    run.send_signal(signal.SIGTERM)
    try:
        assert run.wait(30.0) == 143
    finally:
        run.kill()
        run.wait()
    assert (len(there), list(tmp_path.iterdir())) == (1, [])
