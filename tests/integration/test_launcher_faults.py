"""No fault of one or two processes around a worker makes it run twice, or leaves a process of it
behind.

Two supervisors, each with a launcher, may run the same workers. The first one's launcher,
supervisor, guardians, inits and workers are killed and stopped, alone and in all pairs. One test
covers all combinations that share the same fault of the host's own processes; each combination has
its own job.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, product
from typing import Any

import pytest
from job_host import JobHost, NewHost
from zookeeper_fixtures import eventually

from torrentdist.launcher.guardian_start import why_no_namespaces
from torrentdist.supervisor.process.guardian_processes import left_of

pytestmark = pytest.mark.anyio

KILL, STOP = signal.SIGKILL, signal.SIGSTOP
FAULTS = {"kill": KILL, "stop": STOP}
OF_A_RUN = ("guardian", "init", "pid")
PLAIN, ELSEWHERE = "run.sh", "setsid.sh"
PATIENCE_SECS = 60.0
"""Long enough for everything that is not endless."""

Faults = tuple[tuple[str, str], ...]


def faults_of_a_run(others: int) -> Iterator[Faults]:
    """Yields the faults of a run beside `others` faults of the host's processes; two in all at
    most."""
    for count in range(0 if others else 1, 3 - others):
        for who in combinations(OF_A_RUN, count):
            yield from (tuple(zip(who, how, strict=True)) for how in product(FAULTS, repeat=count))


def runs(others: int) -> Iterator[tuple[Faults, str]]:
    """Yields combinations of faults with the program that they hit: each single fault hits both
    programs, and each pair the one that is harder to end."""
    for faults in faults_of_a_run(others):
        if len(faults) + others < 2:
            yield faults, PLAIN
        yield faults, ELSEWHERE


@dataclass
class Field:
    """The workers under test: a job for each combination of faults and each program."""

    first: JobHost
    second: JobHost
    jobs: dict[str, Faults] = field(default_factory=dict)
    stopped: list[int] = field(default_factory=list)

    async def open(self, others: int) -> None:
        for faults, program in runs(others):
            job = "-".join([program.partition(".")[0], *(word for fault in faults for word in fault)])
            self.jobs[job] = faults
            for host in (self.first, self.second):
                host.job(job, program, stop_grace_secs=0.5, env={**host_env(host), "BEAT_SECS": "0.1"})
        await self.first.assign(*((job, 0) for job in self.jobs))
        for job in self.jobs:
            await self.first.running(job, timeout=PATIENCE_SECS)
        await eventually(lambda: {"running"} == {said["state"] for said in self.statuses()}, PATIENCE_SECS)
        await self.second.assign(*((job, 0) for job in self.jobs))

    def strike_runs(self) -> None:
        said = {status["job"]: status for status in self.statuses()}
        for job, faults in self.jobs.items():
            for number, (who, how) in enumerate(faults):
                # The first fault may have ended the process that the second one is for.
                with contextlib.suppress(*([ProcessLookupError] if number else [])):
                    self.strike(said[job][who], how)

    def statuses(self) -> list[dict[str, Any]]:
        """Returns what the first host's guardians say, with the job's name."""
        paths = self.first.data.glob("guard/*/*/status.json")
        return [{"job": path.parent.parent.name, **json.loads(path.read_bytes())} for path in paths]

    def strike(self, pid: int, how: str) -> None:
        os.kill(pid, FAULTS[how])
        if how == "stop":
            self.stopped.append(pid)

    def wake_all(self) -> None:
        for pid in self.stopped:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue

    def runs_on(self, host: JobHost, job: str) -> list[str]:
        return [s.run for s in self.first.oracle.stints(job, 0) if s.said["cwd"].startswith(f"{host.data}/")]

    def left(self) -> dict[str, list[int]]:
        """Returns what is left of the first host's runs."""
        found = {job: [pid for run in self.runs_on(self.first, job) for pid in left_of(run)] for job in self.jobs}
        return {job: pids for job, pids in found.items() if pids}


def host_env(host: JobHost) -> dict[str, str]:
    return {"ORACLE": str(host.oracle.directory)}


@pytest.mark.case("G1")
@pytest.mark.parametrize("launcher", ["", "kill", "stop"], ids=lambda how: f"launcher-{how or 'well'}")
@pytest.mark.parametrize("supervisor", ["", "kill", "stop"], ids=lambda how: f"supervisor-{how or 'well'}")
async def test_no_two_faults_make_a_worker_run_twice(new_host: NewHost, supervisor: str, launcher: str) -> None:
    """If this fails, a worker runs on beside its successor, and nothing reports it. It takes long:
    a supervisor, its launcher and a worker start."""
    await fight(new_host, supervisor, launcher)


@pytest.mark.case("G1")
@pytest.mark.parametrize("supervisor", ["kill", "stop"])
async def test_the_same_holds_without_namespaces(new_host: NewHost, supervisor: str) -> None:
    """If this fails, a host or container that allows no namespaces runs workers twice."""
    await fight(new_host, supervisor, "", bubblewrap=False)


async def fight(new_host: NewHost, supervisor: str, launcher: str, *, bubblewrap: bool = True) -> None:
    first = await new_host("s1", launcher=True, bubblewrap=bubblewrap)
    second = await new_host("s2", first.oracle, launcher=True, bubblewrap=bubblewrap)
    field = Field(first, second)
    await field.open(len(list(filter(None, (supervisor, launcher)))))
    assert first.launcher is not None
    assert {bubblewrap and not why_no_namespaces()} == {said["namespaces"] for said in field.statuses()}
    try:
        field.strike_runs()
        for pid, how in ((first.pid, supervisor), (first.launcher.pid, launcher)):
            if how:
                field.strike(pid, how)
        await first.assign()
        for job in field.jobs:
            await eventually(lambda job=job: field.runs_on(second, job) and second.alive(job), PATIENCE_SECS)  # type: ignore[misc]

        assert {} == field.left()
    finally:
        field.wake_all()
    since = max(first.oracle.stints(job, 0)[-1].last for job in field.jobs)
    for job in field.jobs:
        await eventually(lambda job=job: first.oracle.stints(job, 0)[-1].last > since + 1.0, PATIENCE_SECS)  # type: ignore[misc]

    assert {} == field.left()
    assert {1} == {len(field.runs_on(second, job)) for job in field.jobs}
