"""The protocols of "never two" as models that spin searches in every order: workers.pml and
leaders.pml, with tables that the product's own functions fill."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from simulation import leader_tables, protocol_tables

WORKERS, LEADERS = (Path(__file__).with_name(f"{name}.pml") for name in ("workers", "leaders"))
BOUNDS = {WORKERS: ("MOVES=2", "FAULTS=1"), LEADERS: ("EPOCHS=2", "FAULTS=1")}
"""How much may happen in a search. docs/how-we-test.md says what larger ones found."""
MORE = ("EPOCHS=3", "FAULTS=1")
"""What the errors of leaders need. A search that finds one ends at once."""
TABLES = {WORKERS: ("tables.inc", protocol_tables.tables), LEADERS: ("leaders.inc", leader_tables.tables)}

pytestmark = pytest.mark.skipif(not (shutil.which("spin") and shutil.which("gcc")), reason="needs spin and gcc")


def search(model: Path, place: Path, *put_back: str) -> str:
    """Returns what spin's search of the model says. `put_back`: errors that it gets."""
    (place / model.name).write_text(model.read_text())
    name, make = TABLES[model]
    (place / name).write_text(make())
    bounds = BOUNDS[model] if not put_back or model is WORKERS else MORE
    flags = [*(f"-D{bound}" for bound in bounds), *(f"-D{error}" for error in put_back)]
    for command in (
        ["spin", "-a", *flags, model.name],
        ["gcc", "-O1", "-DSAFETY", "-DCOLLAPSE", "-DNOREDUCE", "-w", "-o", "pan", "pan.c"],
    ):
        subprocess.run(command, cwd=place, check=True, capture_output=True, timeout=60)
    command = ["./pan", "-E", "-m1000000"]
    return subprocess.run(command, cwd=place, check=False, capture_output=True, text=True, timeout=120).stdout


@pytest.mark.parametrize("model", [WORKERS, LEADERS], ids=lambda model: model.stem)
def test_no_order_of_events_has_two(tmp_path: Path, model: Path) -> None:
    """If this fails, a worker may run on two hosts, or two masters may lead. It takes long, because
    every order of events is searched."""
    said = search(model, tmp_path)

    assert "errors: 0" in said
    assert "max search depth too small" not in said


@pytest.mark.parametrize("error", ["STALE_START", "LONG_LEASE", "RELEASED_EARLY"])
def test_the_model_finds_a_double_run_that_is_put_back(tmp_path: Path, error: str) -> None:
    """If this fails, the model shows nothing: a worker that starts on an old view, outlives its
    session, or loses its barrier as it is told to stop would not be found. It takes long, because a
    search is compiled for each."""
    assert "assertion violated" in search(WORKERS, tmp_path, error)


@pytest.mark.parametrize("error", ["UNFENCED", "LEASE_FROM_ANSWER", "LONG_LEASE", "RESIGNS_FIRST"])
def test_the_model_finds_two_leaders_that_are_put_back(tmp_path: Path, error: str) -> None:
    """If this fails, the model shows nothing: a late change of a former leader, a lease that counts
    from an answer or has no end, or a leader that acts until its place is gone would not be found.
    It takes long, because a search is compiled for each."""
    assert "assertion violated" in search(LEADERS, tmp_path, error)
