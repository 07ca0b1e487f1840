"""Attacks of a job on its host, under a real launcher: the job, the daemon and the launcher are
three different users."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Iterator
from typing import Any

import pytest
from cluster_fixtures import until
from launcher_site import NOBODY, Site, as_root, as_user, in_namespaces, open_directory

from torrentdist.launcher.launcher_client import LauncherClient, LauncherError
from torrentdist.launcher.process_tree import birth_of

JOB, OTHER_JOB = 20000, 20001
pytestmark = [as_root, in_namespaces, pytest.mark.case("F1")]


class Field:
    """A daemon's data directory as it is on a host with two jobs."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.data = site.home / "data"
        self.bundle = self.data / "objects" / "d" / "content"
        self.work = self.data / "workers" / "job" / "0"
        self.other = self.data / "workers" / "other" / "0"
        for folder in (self.bundle, self.work, self.other, self.data / "guard"):
            folder.mkdir(parents=True)
        (self.bundle / "model.py").write_text("published")
        self.secret = site.home / "token"
        for file in (self.secret, self.data / "guard" / "session.json", self.other / "result"):
            file.write_text("SECRET")
            file.chmod(0o600)
        (self.bundle / "model.py").chmod(0o444)
        self.give()

    def give(self) -> None:
        for path in (self.site.home, *self.site.home.rglob("*")):
            if not path.is_symlink():
                os.chown(path, NOBODY.uid, NOBODY.gid)

    def run(self, script: str, uid: int = JOB) -> str:
        """Runs a script as a job, and returns what it wrote into its directory."""
        self.start(f"({script}) > seen 2>&1", uid)
        until(lambda: self.site.status()["state"] == "gone")
        assert self.site.status()["exit_code"] is not None, self.site.status()
        seen = self.work / "seen"
        assert seen.exists(), self.site.status()["detail"]
        return seen.read_text()

    def start(self, script: str, uid: int = JOB, **more: Any) -> int:
        orders: dict[str, Any] = {
            "uid": uid, "cwd": str(self.work), "hidden": [str(self.data), str(self.secret)],
            "read_only": [str(self.bundle)], "writable": [str(self.work)], **more,
        }  # fmt: skip
        self.site.orders(script, **orders)
        os.chown(self.site.home / "spec.json", NOBODY.uid, NOBODY.gid)
        (self.site.home / "status.json").unlink(missing_ok=True)
        return self.site.start()


@pytest.fixture
def field() -> Iterator[Field]:
    with open_directory() as directory:
        site = Site(directory, NOBODY)
        site.launch("--job-users", f"{JOB}-{OTHER_JOB}")
        yield Field(site)
        site.close()


def test_a_job_is_another_user_and_gains_nothing(field: Field) -> None:
    """If this fails, a job is root or the daemon, or becomes root by a set-user-id program."""
    seen = field.run(
        "id -u; id -G; id -un; grep -E '^(CapEff|NoNewPrivs)' /proc/self/status | cut -f2; ls /proc/self/fd"
    )
    uid, groups, name, effective, nothing_new, *fds = seen.split()

    assert [str(JOB), str(JOB), f"job-{JOB}", "0" * 16, "1"] == [uid, groups, name, effective, nothing_new]
    assert ["0", "1", "2", "3"] == fds, "it inherits descriptors; the fourth is the listing's own"


def test_a_job_reads_no_secret_of_its_daemon(field: Field) -> None:
    """If this fails, each job can do to the cluster whatever its hosts can."""
    seen = field.run(f"cat {field.secret} {field.data}/guard/session.json; ls -A {field.data} {field.data}/guard")

    assert "SECRET" not in seen
    assert "session" not in seen.replace("session.json: No such file", "")
    assert {"objects", "workers"} <= set(seen.split())


def test_a_job_does_not_see_another_jobs_directory(field: Field) -> None:
    """If this fails, jobs of different owners read and change each other's results."""
    os.chown(field.other, OTHER_JOB, NOBODY.gid)
    seen = field.run(f"ls -d {field.other}; cat {field.other}/result; ls {field.data}/workers")

    assert "SECRET" not in seen
    assert ["job"] == seen.split("\n")[2:-1]


def test_a_job_reads_its_bundle_and_cannot_change_it(field: Field) -> None:
    """If this fails, a job rewrites a dependency in place, and the next job runs the result."""
    file = field.bundle / "model.py"
    seen = field.run(
        f"cat {file} && echo; (echo evil > {file}) || (chmod u+w {file} && echo evil > {file}) ||"
        f" ln {file} linked || mv {file} gone || rm -f {file} || touch {file.parent}/new || echo confined"
    )

    assert ("published", "confined") == (seen.split()[0], seen.split()[-1])
    assert "published" == file.read_text()


def test_a_job_cannot_signal_or_trace_its_daemon(field: Field) -> None:
    """If this fails, a job stops the daemon, or reads the cluster's secrets in its memory."""
    guardian = field.start("sleep 60")
    until(lambda: field.site.status()["state"] == "running")
    init = field.site.status()["init"]
    targets = (os.getpid(), guardian, init, field.site.launchers[0].pid)
    attack = "; ".join(f"kill -9 {pid}; kill -STOP {pid}; cat /proc/{pid}/environ /proc/{pid}/maps" for pid in targets)
    os.kill(guardian, 10)
    until(lambda: field.site.status()["state"] == "gone")
    seen = field.run(f"{attack}; kill -9 1; kill -STOP 1; cat /proc/1/environ; ls -l /proc/1/cwd/")

    assert "PATH=" not in seen
    assert field.site.launchers[0].poll() is None
    assert birth_of(os.getpid()) is not None


@pytest.mark.parametrize("uid", [0, NOBODY.uid, JOB - 1, OTHER_JOB + 1])
def test_the_launcher_allows_its_own_users_only(field: Field, uid: int) -> None:
    """If this fails, a daemon that was taken over starts programs as any user of the host."""
    field.start("id -u > ran", uid, cwd="/", writable=[], hidden=[])
    log = field.site.home / "guardian.log"
    if uid == NOBODY.uid:  # the daemon's own user takes no permission
        until(lambda: field.site.status()["state"] == "gone")
        return
    until(lambda: log.exists() and "not allowed" in log.read_text())

    assert "" == field.site.status()["state"]


def test_a_daemon_can_hand_over_and_show_its_own_directories_only(field: Field) -> None:
    """If this fails, a daemon that was taken over owns or reads any directory of the host."""
    roots = field.site.home.parent / "roots"
    roots.mkdir(mode=0o755)
    link = field.site.home / "link"
    link.symlink_to(roots)
    attempts: tuple[dict[str, Any], ...] = (
        {"writable": [str(roots)]},
        {"writable": [str(link)]},
        {"read_only": [str(roots)]},
    )
    for more in attempts:
        field.start("touch ran", JOB, cwd="/", **{"writable": [], **more})
        until(lambda: field.site.status()["state"] == "gone")

        assert 127 == field.site.status()["exit_code"]
        assert field.site.status()["detail"], "nobody learns why it did not start"
    assert 0 == roots.stat().st_uid


def test_a_data_directory_behind_a_closed_one_can_be_used(field: Field) -> None:
    """If this fails, `dev up` below a home directory starts no job as another user."""
    field.site.home.chmod(0o700)
    seen = field.run(f"cat {field.bundle}/model.py && echo; ls -A {field.site.home}")

    assert ["published", "data"] == seen.split()


def test_limits_hold_for_a_job(field: Field) -> None:
    """If this fails, one job takes every process or descriptor of a host."""
    field.start("ulimit -n > seen; ulimit -u >> seen; ulimit -c >> seen", processes=64, open_files=32)
    until(lambda: field.site.status()["state"] == "gone")

    # dash knows no `ulimit -u`, but bash and /proc do.
    assert ["32", "0"] == [word for word in (field.work / "seen").read_text().split() if word != "64"]


def test_what_a_job_leaves_is_removed_with_its_own_rights(field: Field) -> None:
    """If this fails, a job fills the disk with what its daemon cannot remove, or has the launcher
    remove other users' files."""
    victim = field.site.home.parent / "victim"
    victim.mkdir(mode=0o777)
    (victim / "file").write_text("stays")
    field.run(f"mkdir -p a/b && touch a/b/c && ln -s {victim} a/out && chmod 000 a/b a")
    client = LauncherClient(str(field.site.socket))

    def remove() -> int:
        with pytest.raises(LauncherError):
            client.remove(str(field.work), JOB - 1)
        client.remove(str(field.work), JOB)
        return int(field.work.exists())

    assert 0 == as_user(NOBODY, remove)
    assert "stays" == (victim / "file").read_text()


def test_a_daemon_with_many_connections_removes_what_a_job_leaves(field: Field) -> None:
    """If this fails, a host with more than a thousand connections starts no worker whose directory
    another user had, or its supervisor ends."""
    field.run("mkdir a && touch a/b && chmod 000 a")
    client = LauncherClient(str(field.site.socket))

    def remove() -> int:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (2048, most))
        while os.dup(0) < 1100:
            pass
        client.remove(str(field.work), JOB)
        return int(field.work.exists())

    assert 0 == as_user(NOBODY, remove)


def test_the_directory_of_a_job_is_its_users_and_its_daemons(field: Field) -> None:
    """If this fails, the daemon cannot lay the next bundle into a worker's directory, or anybody
    can."""
    field.run("true")
    found = field.work.stat()

    assert (JOB, NOBODY.gid, 0o770) == (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode))
