"""The lab's short form, as CI runs it: a broadcast over slow links, in namespaces that are gone
afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LONGEST_SECS = 300
NO_LAB = 2
LOOSE = 2.5
"""Most link times that it may take. Short bundles pay for every start, and the machine does other
things too. Four separate copies from one holder would take four."""


@pytest.mark.alone
@pytest.mark.quiet
@pytest.mark.case("E7")
@pytest.mark.parametrize("options", [[], ["--tls"]])
def test_a_broadcast_over_slow_links_finishes_everywhere_and_leaves_nothing(options: list[str], tmp_path: Path) -> None:
    """If this fails, hosts wait for each other's pieces for ever, or interfaces and processes stay
    on the machine. It takes long: nine hosts start, for us and for others."""
    before = _interfaces()
    command = [
        sys.executable,
        "-m",
        "bench.swarm.lab_run",
        "--hosts",
        "4",
        "--rate",
        "25",
        "--size",
        "8",
        "--peers",
        "",
        *options,
    ]
    ended = subprocess.run(
        command, cwd=ROOT, env=_at(tmp_path), capture_output=True, timeout=LONGEST_SECS, check=False, text=True
    )
    if ended.returncode == NO_LAB:
        pytest.skip(ended.stderr)
    if ended.returncode:
        pytest.fail(ended.stderr)
    answer = json.loads(ended.stdout.splitlines()[-1])

    assert answer["done"] == 4
    assert answer["ratio"] < LOOSE
    assert _interfaces() == before
    assert _commands(tmp_path) == []


def test_a_lab_whose_starter_is_killed_leaves_nothing(tmp_path: Path) -> None:
    """If this fails, a run that crashes leaves daemons and interfaces on the machine."""
    before = _interfaces()
    command = [sys.executable, "-m", "bench.swarm.lab_run", "--hosts", "2", "--size", "1"]
    starter = subprocess.Popen(command, cwd=ROOT, env=_at(tmp_path))
    deadline = time.monotonic() + LONGEST_SECS
    while len(_commands(tmp_path)) < 2 and starter.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    starter.kill()
    if starter.wait() == NO_LAB:
        pytest.skip("no namespaces on this machine")
    while _commands(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.02)

    assert _commands(tmp_path) == []
    assert _interfaces() == before


def _interfaces() -> set[str]:
    return set(os.listdir("/sys/class/net"))


def _at(place: Path) -> dict[str, str]:
    """Returns an environment that marks the processes of one lab."""
    return {**os.environ, "TMPDIR": str(place)}


def _commands(place: Path) -> list[str]:
    """Returns the commands of the processes that were started with that environment."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={place}".encode() in (process / "environ").read_bytes().split(b"\0"):
                commands.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return commands


def test_the_comparison_without_limits_says_both_forms() -> None:
    """It has no case in the table of scenarios: a lookup there would end it before it begins. It
    takes long: the hosts start twice."""
    command = [sys.executable, "-m", "bench.swarm.lab_run", "--scenario", "unlimited", "--size", "8", "--runs", "1"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_SECS, check=False)
    rows = [json.loads(line) for line in ended.stdout.splitlines()]

    assert ended.returncode in (0, 3), ended.stderr
    assert [("1:1" in row["what"], "1:4" in row["what"], len(row["each"])) for row in rows] == [
        (True, False, 1),
        (False, True, 1),
    ]
