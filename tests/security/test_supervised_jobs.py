"""Attacks of a job on a real supervisor: the supervisor, its launcher and each job are different
users, as an installed host has them."""

from __future__ import annotations

import os
import signal
import subprocess
import sysconfig
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest
from job_host import BUNDLE, DaemonProcess, JobHost
from launcher_site import as_root, in_namespaces, open_directory
from zookeeper_fixtures import Connect, eventually

from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.model.ids import BundleId, JobId
from torrentdist.supervisor.process.output_files import Stream, read_output
from torrentdist.supervisor.process.worker_homes import Homes

DAEMON = 65534
JOBS = "20000-20009"
SYSTEM_PYTHON = Path("/usr/bin/python3.11")
"""A Python that every user can run; the one of the tests may lie in a home directory."""
SOURCE = Path(__file__).parents[2]
pytestmark = [
    as_root,
    in_namespaces,
    pytest.mark.anyio,
    pytest.mark.case("F1"),
    pytest.mark.skipif(not SYSTEM_PYTHON.exists(), reason="no Python that other users can run"),
]


class InstalledHost(JobHost):
    """A supervisor of a user of its own, beside a launcher that root has started."""

    session_secs = 20.0
    """A supervisor that starts again on a busy machine still finds its session."""

    def give(self) -> None:
        subprocess.run(["chown", "-R", f"{DAEMON}:{DAEMON}", str(self.dir)], check=True)

    def _spawn(self, config: Path) -> DaemonProcess:
        self.give()
        path = f"{SOURCE}:{SOURCE}/cli:{sysconfig.get_path('purelib')}"
        who = ["setpriv", f"--reuid={DAEMON}", f"--regid={DAEMON}", "--clear-groups"]
        env = ["env", f"PYTHONPATH={path}", "DAEMON_SECRET=SECRET", "HOME=/nonexistent"]
        program = [str(SYSTEM_PYTHON), "-m", "torrentdist_cli", "--config", str(config), "supervisor"]
        return self._run([*who, *env, *program], self.dir / "log")

    def said_by(self, job: str, worker: int = 0) -> str:
        home = Homes(self.data).guard((JobId(job), worker))
        return read_output(home, Stream.STDOUT, 0).data.decode()

    async def result_of(self, job: str, script: str, dependencies: Sequence[BundleId] = ()) -> str:
        """Runs a script as a job until it says that it is done. Returns what it printed."""
        self.job(job, "sh", "-c", f"({script}) 2>&1; echo DONE; sleep 60")
        self.masters.jobs[job] = msgspec.structs.replace(self.masters.jobs[job], dependencies=list(dependencies))
        await self.assign((job, 0))
        await eventually(lambda: "DONE" in self.said_by(job), 20.0)
        return self.said_by(job)


@pytest.fixture
async def installed(zookeeper: EmbeddedZooKeeper, chroot: str, connect: Connect) -> AsyncIterator[InstalledHost]:
    with open_directory() as directory:
        host = InstalledHost(directory, await connect(), zookeeper.addresses, chroot)
        host.dir.mkdir()
        for name in ("token", "auth"):
            (host.dir / name).write_text("SECRET")
            (host.dir / name).chmod(0o600)
        host.settings = {
            "jobs": {"user": JOBS, "isolation": "required", "pass_env": ["PATH"]},
            "client": {"token_file": str(host.dir / "token")},
            "api": {"token_file": str(host.dir / "token")},
        }
        try:
            await host.start_launcher("--user", str(DAEMON), "--job-users", JOBS)
            await host.open()
            yield host
        finally:
            await host.close()


async def test_a_job_learns_no_secret(installed: InstalledHost) -> None:
    """If this fails, each job can do to the cluster whatever its hosts can."""
    reads = f"env; cat {installed.dir}/token {installed.data}/session.json {installed.data}/guard/lease.json"
    pid = installed.pid
    seen = await installed.result_of(
        "etl", f"id -u; {reads}; cat /proc/{pid}/environ; kill -9 {pid}; ls -A {installed.data}"
    )

    assert 20000 <= int(seen.split()[0]) <= 20009
    assert "SECRET" not in seen
    assert "session" not in seen.replace("session.json", "")
    assert installed._process is not None
    assert installed._process.poll() is None


async def test_a_job_works_in_its_directory_and_cannot_rewrite_its_bundle(installed: InstalledHost) -> None:
    """If this fails, a job rewrites a dependency in place, and the next job runs the result."""
    attack = "(echo evil > bundle/main.py || chmod -R u+w bundle/ || rm -rf bundle/* || touch bundle/x) && echo BROKEN"
    use = f"cat deps/{BUNDLE}/main.py > /dev/null && echo mine > result; cat result; ls -d bundle deps"
    seen = await installed.result_of("etl", f"{attack}; head -c 6 main.py; echo; {use}", dependencies=(BUNDLE,))

    assert "BROKEN" not in seen
    assert ["mine", "bundle", "deps", "DONE"] == seen.split()[-4:]


async def test_each_job_of_a_range_has_a_user_and_a_view_of_its_own(installed: InstalledHost) -> None:
    """If this fails, jobs of different owners read and end each other."""
    touch = "touch $TORRENTDIST_HEARTBEAT_FILE"
    first = await installed.result_of("one", f"id -u; echo SECRET > mine; chmod 777 . mine; {touch}")
    look = f"id -u; cat {installed.data}/workers/one/0/mine; ls {installed.data}/workers"
    installed.job("two", "sh", "-c", f"{look}; echo DONE; sleep 60")
    await installed.assign(("one", 0), ("two", 0))
    await eventually(lambda: "DONE" in installed.said_by("two"), 20.0)
    second = installed.said_by("two")

    assert first.split()[0] != second.split()[0]
    assert ["two", "DONE"] == second.split()[1:]
    assert (installed.data / "guard" / "one" / "0" / "sign" / "heartbeat").exists()


async def test_a_job_that_left_leaves_nothing(installed: InstalledHost) -> None:
    """If this fails, jobs fill a disk with files that their supervisor cannot remove."""
    await installed.result_of(
        "etl", "mkdir -p a/b && touch a/b/c && chmod 000 a/b a; touch $TORRENTDIST_HEARTBEAT_FILE"
    )
    await installed.assign()
    await eventually(lambda: not (installed.data / "workers" / "etl").exists(), 20.0)

    assert not (installed.data / "guard" / "etl" / "0" / "sign").exists()


async def test_a_supervisor_restarts_under_a_running_job_of_another_user(installed: InstalledHost) -> None:
    """If this fails, an update of a supervisor ends its jobs, or two of them run."""
    await installed.result_of("etl", "echo $TORRENTDIST_RUN")
    before = installed.statuses()[0]["run"]
    await installed.end(signal.SIGKILL)
    await installed.start()
    await eventually(lambda: (said := installed.masters.said("etl", 0)) is not None and said.pid > 0, 20.0)

    assert before == installed.statuses()[0]["run"]
    os.kill(installed.statuses()[0]["pid"], 0)


async def test_a_host_that_cannot_isolate_its_jobs_says_why(installed: InstalledHost) -> None:
    """If this fails, jobs run with the cluster's secrets at hand on a host that must isolate
    them, or do not run and nobody learns why."""
    installed.settings = {"jobs": {"user": "20000-29999", "isolation": "required"}}
    await installed.end(signal.SIGTERM)
    await installed.start()
    installed.job("etl", "sh", "-c", "echo ran; sleep 60")
    await installed.assign(("etl", 0))
    await eventually(
        lambda: (said := installed.masters.said("etl", 0)) is not None and "cannot isolate" in said.detail, 20.0
    )
    doctor = installed.gateway("/v1/host/isolation").json()

    assert "the launcher allows jobs to run as 20000-20009" in doctor["why_own_user"]
    assert doctor["refuses_jobs"]
    assert "" == installed.said_by("etl")


FETCH = """
import json, os, urllib.error, urllib.request

opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
gateway, token = os.environ["TORRENTDIST_GATEWAY"], open(os.environ["TORRENTDIST_JOB_TOKEN_FILE"]).read()
for method, path, headers in [
    ("GET", "/bundles/work-1", {}),
    ("GET", "/bundles/work-1/files/main.py", {}),
    ("GET", "/bundles/work-1/files/main.py", {"Authorization": "Bearer " + token}),
    ("GET", "/bundles/other-1/files/main.py", {}),
    ("GET", "/v1/host/workers", {}),
    ("POST", "/v1/host/prune", {}),
    ("POST", "/v1/host/bundles/work-1/verify", {"Authorization": "Bearer " + token}),
]:
    try:
        answer = opener.open(urllib.request.Request(gateway + path, method=method, headers=headers))
        print(answer.status)
        if path == "/bundles/work-1":
            print("main.py" in os.listdir(json.load(answer)["path"]))
    except urllib.error.HTTPError as error:
        print(error.code)
"""


async def test_a_job_gets_its_own_bundles_from_the_gateway(installed: InstalledHost) -> None:
    """If this fails, a job empties its host's store, or reads the bundles of other jobs."""
    (installed.dir / "fetch.py").write_text(FETCH)
    seen = await installed.result_of("etl", f"{SYSTEM_PYTHON} {installed.dir}/fetch.py")

    assert ["200", "True", "200", "200", "403", "403", "403", "403", "DONE"] == seen.split()
    assert 200 == installed.gateway("/v1/host/workers").status_code
