"""The simulation itself: it repeats to the byte, and its plainest stories go well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulation.simulated_engine import SimulatedEngine

from torrentdist.swarm.engine.engine import Engine

ROOT = Path(__file__).parent.parent.parent
FOUND = (("night", 2056), ("night", 1290727785))
"""Stories that once found something: the name and the seed."""


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


@pytest.mark.parametrize("story", ["thread", "night"])
def test_a_story_repeats_to_the_byte(story: str) -> None:
    """If this fails, the seed of a night that found something does not find it again. It takes
    long, because it runs whole clusters for minutes of their time."""
    arguments = ("--story", story, "--seed", "3", "--count", "1", "--trace", "--whole")
    lines = [
        [line for line in simulate(*arguments, hash_seed=seed)[1].splitlines() if line.startswith("seed")]
        for seed in ("0", "4711")
    ]

    assert lines[0]
    assert lines[0] == lines[1]


@pytest.mark.parametrize(("story", "seed"), FOUND)
def test_what_was_found_stays_fixed(story: str, seed: int) -> None:
    """If this fails, an error that a story had found is back."""
    code, said = simulate("--story", story, "--seed", str(seed), "--count", "1")

    assert code == 0, said
