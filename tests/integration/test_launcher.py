"""A real launcher: which callers it serves, as which user it starts runs, and what happens to
requests that it answers late."""

from __future__ import annotations

import os
import re
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_fixtures import until
from launcher_site import NOBODY, RUN, Site, as_root, in_namespaces, open_directory

from torrentdist.launcher.guardian_start import why_no_namespaces
from torrentdist.launcher.launcher_client import LauncherClient, LauncherError, NoLauncherAnswer
from torrentdist.launcher.privileges import CAP_KILL, own_user
from torrentdist.launcher.process_tree import birth_of
from torrentdist.launcher.run.control_group import remove_empty
from torrentdist.supervisor.process import guardian_processes

GROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


@pytest.fixture
def directory() -> Iterator[Path]:
    with open_directory() as made:
        yield made


@pytest.fixture
def own(directory: Path) -> Iterator[Site]:
    """A launcher for this user."""
    site = Site(directory, own_user())
    yield site
    site.close()


@pytest.fixture
def other(directory: Path) -> Iterator[Site]:
    """A launcher for a daemon of another user."""
    site = Site(directory, NOBODY)
    yield site
    site.close()


@as_root
def test_it_serves_its_daemon_alone(other: Site) -> None:
    """If this fails, any user of the host starts programs as the daemon."""
    other.launch()
    found = other.socket.stat()

    assert (0o600, NOBODY.uid) == (stat.S_IMODE(found.st_mode), found.st_uid)
    with pytest.raises(LauncherError, match="user 0 may not"):
        LauncherClient(str(other.socket)).isolation()


@pytest.mark.parametrize(
    "request_", [b"", b"{", b"[]", b'{"do": "start", "home": "/", "run": "r"}', b"null", b"[" * 9999]
)
def test_what_is_no_request_is_refused(own: Site, request_: bytes) -> None:
    """If this fails, one bad request ends the launcher, and no worker of the host starts any
    more."""
    own.launch()
    client = LauncherClient(str(own.socket))
    with pytest.raises(LauncherError):
        client._send(request_)

    assert client.isolation().namespaces == (not why_no_namespaces())


PROBE = """
id -u > seen; grep -E "^(CapEff|CapPrm|NoNewPrivs)" /proc/self/status | cut -f2 >> seen
kill -STOP 1; kill -KILL 1
echo changed > objects/file || ln objects/file linked || echo confined >> seen
ls /proc/self/fd | wc -l >> seen
ls /proc | grep -c "^[0-9]" >> seen
(setsid sleep 60 &) ; echo ready >> seen; sleep 60
"""


@as_root
@in_namespaces
@pytest.mark.case("G1")
def test_a_run_has_its_daemons_user_and_no_privilege(other: Site) -> None:
    """If this fails, a job is root on every host, changes published files, or stops what watches
    it."""
    other.launch()
    other.orders(PROBE)
    guardian = other.start()
    seen = other.home / "seen"
    until(lambda: seen.exists() and "ready" in seen.read_text())
    found = seen.read_text().split()
    kept = re.findall(r"(?m)^(?:Uid|CapPrm):\t(\w+)", Path(f"/proc/{guardian}/status").read_text())

    assert [str(NOBODY.uid), "0000000000000000", "0000000000000000", "1", "confined"] == found[:5]
    assert 4 == int(found[5]), "it inherits descriptors besides its own three"
    assert int(found[6]) < 10, "it sees other processes than its own"
    assert [str(NOBODY.uid), f"{1 << CAP_KILL:016x}"] == kept
    assert "published" == (other.home / "objects" / "file").read_text()


@as_root
@in_namespaces
@pytest.mark.case("G1")
@pytest.mark.parametrize("fault", ["guardian killed", "init killed", "init stopped", "guardian stopped"])
def test_a_run_of_another_user_ends_as_any_other(other: Site, fault: str) -> None:
    """If this fails, a process that may not signal another user's processes leaves them running."""
    other.launch()
    lease_secs = 60.0 if "killed" in fault else 4.0
    other.orders("(setsid sleep 60 &) ; sleep 60", lease_secs)
    other.start()

    def begun() -> bool:
        other.lease(lease_secs)  # it must not end before it has begun
        return bool(other.status()["state"] == "running")

    until(begun)
    who, _, how = fault.partition(" ")
    guardian = other.status()["guardian"]
    try:
        os.kill(other.status()[who], signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        until(lambda: not guardian_processes.left_of(RUN))
    finally:
        if birth_of(guardian) is not None:
            os.kill(guardian, signal.SIGCONT)


def test_a_second_launcher_ends_and_one_that_was_killed_is_replaced(own: Site) -> None:
    """If this fails, two launchers serve one host, or a killed one keeps every worker from
    starting."""
    first = own.launch()
    second = own.launch()
    until(lambda: second.poll() is not None)
    assert LauncherClient(str(own.socket)).isolation() is not None
    first.kill()
    first.wait()
    with pytest.raises(LauncherError):
        LauncherClient(str(own.socket)).isolation()
    own.launch()

    assert LauncherClient(str(own.socket)).isolation() is not None


@pytest.mark.case("G1")
def test_a_request_that_was_given_up_starts_nothing_later(own: Site) -> None:
    """If this fails, a launcher that was stopped starts a worker long after another host has it."""
    launcher = own.launch()
    own.orders("touch ran")
    launcher.send_signal(signal.SIGSTOP)
    with pytest.raises(NoLauncherAnswer):
        own.start(answer_secs=0.2)
    assert guardian_processes.forbid_starts(own.home)
    launcher.send_signal(signal.SIGCONT)
    until(lambda: (own.home / "guardian.log").exists() and "No such file" in (own.home / "guardian.log").read_text())
    until(lambda: guardian_processes.forbid_starts(own.home))

    assert not (own.home / "ran").exists()


def test_runs_go_on_without_their_launcher(own: Site) -> None:
    """If this fails, an update of the launcher ends every worker of the host."""
    launcher = own.launch()
    own.orders("sleep 60")
    own.start()
    until(lambda: own.status()["state"] == "running")
    launcher.kill()
    launcher.wait()
    own.launch()

    assert birth_of(own.status()["pid"]) is not None


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group that is delegated as systemd does it."""
    unified = next((p for p in map(Path, GROUPS) if (p / "cgroup.procs").exists() and os.access(p, os.W_OK)), None)
    if unified is None or os.geteuid() != 0:
        pytest.skip("no cgroup v2 can be made here")
    made = unified / f"torrentdist-test-{os.getpid()}"
    made.mkdir()
    if not (made / "cgroup.kill").exists():
        made.rmdir()
        pytest.skip("this kernel has no cgroup.kill")
    yield made
    remove_empty(str(made))
    until(lambda: not (made / "cgroup.procs").read_text())
    made.rmdir()


@as_root
@pytest.mark.case("G1")
def test_a_run_has_a_control_group_and_ends_with_it(directory: Path, group: Path) -> None:
    """If this fails, a host without namespaces has no second way to end a run, or keeps a group for
    each past run."""
    site = Site(directory, NOBODY)
    try:
        site.launch("--delegated", group=group)
        site.orders("(setsid env -i sleep 60 &) ; sleep 60")
        guardian = site.start()
        own = group / f"run-{RUN}"
        until(lambda: site.status()["state"] == "running" and len((own / "cgroup.procs").read_text().split()) >= 3)
        assert str(guardian) not in (own / "cgroup.procs").read_text().split()
        os.kill(guardian, signal.SIGUSR1)
        until(lambda: site.status()["state"] == "gone")

        assert "" == (own / "cgroup.procs").read_text()
    finally:
        site.close()
    remove_empty(str(group))
    assert not own.exists()
