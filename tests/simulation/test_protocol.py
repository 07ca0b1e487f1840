"""The protocol of "never two", as a model that spin searches in every order: workers.pml, with
tables that the product's own functions fill."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from simulation.protocol_tables import tables

MODEL = Path(__file__).with_name("workers.pml")
MOVES, FAULTS = 2, 1
"""Three hosts, among which the leader moves the worker, with one fault: 340,000 states. Left out:
a second fault, which takes minutes to search, and the fencing of the leader."""

pytestmark = pytest.mark.skipif(not (shutil.which("spin") and shutil.which("gcc")), reason="needs spin and gcc")


def search(place: Path, *put_back: str) -> str:
    """Returns what spin's search of the model says. `put_back`: errors that it gets."""
    (place / MODEL.name).write_text(MODEL.read_text())
    (place / "tables.inc").write_text(tables())
    flags = [f"-DMOVES={MOVES}", f"-DFAULTS={FAULTS}", *(f"-D{error}" for error in put_back)]
    for command in (
        ["spin", "-a", *flags, MODEL.name],
        ["gcc", "-O1", "-DSAFETY", "-DCOLLAPSE", "-DNOREDUCE", "-w", "-o", "pan", "pan.c"],
    ):
        subprocess.run(command, cwd=place, check=True, capture_output=True, timeout=60)
    command = ["./pan", "-E", "-m1000000"]
    return subprocess.run(command, cwd=place, check=False, capture_output=True, text=True, timeout=120).stdout


def test_no_order_of_events_runs_a_worker_without_its_barrier(tmp_path: Path) -> None:
    """If this fails, a worker may run on two hosts. It takes long, because every order of events is
    searched."""
    said = search(tmp_path)

    assert "errors: 0" in said
    assert "max search depth too small" not in said


@pytest.mark.parametrize("error", ["STALE_START", "LONG_LEASE", "RELEASED_EARLY"])
def test_the_model_finds_a_double_run_that_is_put_back(tmp_path: Path, error: str) -> None:
    """If this fails, the model shows nothing: a worker that starts on an old view, outlives its
    session, or loses its barrier as it is told to stop would not be found. It takes long, because a
    search is compiled for each."""
    assert "assertion violated" in search(tmp_path, error)
