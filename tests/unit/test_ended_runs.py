"""Measures that were decided for a run that ended before they were taken."""

from __future__ import annotations

import pytest

from torrentdist.launcher.launcher_client import OwnStarter
from torrentdist.model.ids import JobId
from torrentdist.supervisor.jobs.local_state import RunRecord
from torrentdist.supervisor.process.guardian_processes import GuardianStatus
from torrentdist.supervisor.process.running import SIGNALS, Running

KEY = JobId("etl"), 0


async def unexpected(key: tuple[JobId, int], run: RunRecord, status: GuardianStatus | None) -> None:
    pytest.fail(f"the run of {key} ended twice")


def test_a_run_that_has_just_ended_is_left_alone() -> None:
    """If this fails, a supervisor ends by itself when a worker ends while a round decides."""
    running = Running(OwnStarter(), unexpected, lambda: None)
    running.carry_over(KEY, 7)

    assert [False] * 3 == [running.end(KEY, measure) for measure in SIGNALS]
    assert running.get(KEY) is None
