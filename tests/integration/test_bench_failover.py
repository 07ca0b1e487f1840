"""The benchmark's short form for masters and supervisors that are killed. It mostly waits."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_short import rows_that_miss


@pytest.mark.alone
@pytest.mark.quiet
@pytest.mark.case("E8")
def test_failovers_and_jobs_meet_their_bars_with_room_for_noise(tmp_path: Path) -> None:
    """If this failed, a release could let clients wait twice as long as promised, and no test would
    notice. It takes long because masters and jobs start and end several times."""
    barred, missed, table = rows_that_miss("failover,jobs", tmp_path)

    assert {"failover-killed", "job-submit", "supervisor-lost"} <= barred
    assert [] == missed, table
