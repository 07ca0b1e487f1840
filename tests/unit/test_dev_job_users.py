"""The users that jobs run as in a cluster of `dev up`."""

from __future__ import annotations

from pathlib import Path

from torrentdist.dev.dev_cluster import DevSpec, users_of_jobs


def test_a_variable_decides_about_the_users_of_jobs(tmp_path: Path) -> None:
    """The launcher would allow other users than the supervisors ask for, and jobs would run as
    root."""
    spec = DevSpec(dir=tmp_path, settings={"jobs": {"user": "30000"}})

    assert "20000-20999" == users_of_jobs(spec, {"TORRENTDIST_JOBS_USER": "20000-20999"})
    assert "30000" == users_of_jobs(spec, {})
