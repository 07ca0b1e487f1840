"""When a worker counts as silent."""

from __future__ import annotations

import os
from pathlib import Path

from torrentdist.model.jobs.job import JobSpec
from torrentdist.supervisor.worker.heartbeat_files import FILE, HeartbeatWatch

SPEC = JobSpec(name="j", heartbeat_secs=5.0, heartbeat_start_secs=20.0)


def beat(home: Path, stamp: int) -> None:
    (home / FILE).touch()
    os.utime(home / FILE, ns=(stamp, stamp))


def silent_after(watch: HeartbeatWatch, run: str, home: Path, spec: JobSpec, now: float) -> bool:
    watch.note(run, watch.read({run: home})[run], spec, now)
    return watch.is_silent(run)


def test_the_first_sign_of_life_may_take_longer(tmp_path: Path) -> None:
    """If this fails, a worker that loads for a while is ended before it ever works, or hangs at its
    start for ever."""
    watch = HeartbeatWatch()
    early = [silent_after(watch, "r", tmp_path, SPEC, now) for now in (0.0, 19.0)]

    assert [False, False] == early
    assert silent_after(watch, "r", tmp_path, SPEC, 21.0)
    assert watch.forget("r")
    assert not watch.forget("r")


def test_silence_counts_from_the_last_change_whatever_the_clock_says(tmp_path: Path) -> None:
    """If this fails, setting the host's clock ends healthy workers, or one that hangs is never
    ended."""
    watch = HeartbeatWatch()
    found = []
    for now, stamp in ((0.0, 900), (4.0, 100), (8.0, 10**18), (12.0, 10**18), (14.0, 10**18)):
        beat(tmp_path, stamp)
        found.append(silent_after(watch, "r", tmp_path, SPEC, now))

    assert [False, False, False, False, True] == found


def test_a_job_without_heartbeats_is_never_silent(tmp_path: Path) -> None:
    """If this fails, every ordinary program is restarted for ever."""
    watch = HeartbeatWatch()
    silent_after(watch, "r", tmp_path, JobSpec(name="j"), 0.0)

    assert not silent_after(watch, "r", tmp_path, JobSpec(name="j"), 1e9)


def test_a_heartbeat_that_was_sent_counts_like_a_touched_file(tmp_path: Path) -> None:
    """If this fails, a worker that sends its heartbeats to the gateway is ended all the same."""
    watch = HeartbeatWatch()
    found = []
    for now in (0.0, 4.0, 8.0, 12.0):
        watch.beat("r")
        found.append(silent_after(watch, "r", tmp_path, SPEC, now))

    assert [False] * 4 == found
    assert silent_after(watch, "r", tmp_path, SPEC, 18.0)
