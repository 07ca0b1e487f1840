"""`dev up` and `dev down`, killed or run twice at once: `dev down` finds every process that is
left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_fixtures import until

from torrentdist.dev.dev_cluster import DevCluster, DevSpec, stop
from torrentdist.dev.dev_processes import is_alive, living, read_state, save_state
from torrentdist.model.errors import TorrentdistError

pytestmark = pytest.mark.case("G12")


def dev(directory: Path, command: str, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "torrentdist_cli", "-o", "json", "dev", command, "--dir", str(directory), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def up(directory: Path) -> subprocess.Popen[str]:
    return dev(directory, "up", "--detach", "--masters", "1", "--supervisors", "1")


def processes_of(directory: Path) -> dict[int, str]:
    """Returns every process whose command line names the directory, by pid. The kernel's list
    counts, not our notes."""
    found = {}
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in line and pid != os.getpid():
            found[pid] = line
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory for a cluster. Every process whose command line names it is killed at the end."""
    path = tmp_path / "dev"
    yield path
    for pid in processes_of(path):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("program", ["zookeeper.server", "torrentdist_cli master", "torrentdist_cli supervisor"])
def test_down_finds_what_a_killed_up_has_started(directory: Path, program: str) -> None:
    """After kill -9 of `dev up`, the process that it had just started would run for ever."""
    started = up(directory)
    until(lambda: any(program in line for line in processes_of(directory).values()), f"a process: {program}", 60)
    started.kill()
    started.communicate()

    down = dev(directory, "down")
    _, stderr = down.communicate(timeout=90)

    assert (0, "") == (down.returncode, stderr)
    assert {} == processes_of(directory)


def test_of_two_ups_at_once_one_starts_and_the_other_says_so(directory: Path) -> None:
    """Both would start a cluster, and the state of the second would hide the processes of the
    first."""
    both = [up(directory), up(directory)]
    said = [process.communicate(timeout=120)[1] for process in both]

    assert [0, 9] == sorted(process.returncode for process in both), said
    refused = said[0] if both[0].returncode else said[1]
    assert "error[dev_running]" in refused
    assert f"dev down --dir {directory}" in refused
    names = [process.id for process in read_state(directory).processes]
    assert len(set(names)) == len(names)
    assert {"zookeeper-1", "master-1", "supervisor-1"} <= set(names)
    down = dev(directory, "down")
    down.communicate(timeout=90)
    assert 0 == down.returncode
    assert {} == processes_of(directory)


SLEEPER = """
import sys
from torrentdist.dev.dev_cluster import DevCluster
from torrentdist_cli.main import main

DevCluster._start_all = lambda cluster, say: cluster.start_process("master-1", ["sleep", "60"])
sys.exit(main(sys.argv[1:]))
"""


def test_an_up_that_cannot_print_its_table_stops_the_cluster(directory: Path) -> None:
    """If this failed, `dev up | head -1`, or one into a full disk, would leave its cluster running
    for ever."""
    try:
        with open("/dev/full", "wb") as full:
            ran = subprocess.run(
                [sys.executable, "-c", SLEEPER, "dev", "up", "--dir", str(directory)],
                stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True, timeout=30,
            )  # fmt: skip

        assert 8 == ran.returncode, ran.stderr
        assert "No space left on device" in ran.stderr
        assert [] == living(read_state(directory))
    finally:
        stop(directory)


class Sleepers(DevCluster):
    """A cluster whose members only sleep."""

    def command(self, name: str) -> list[str]:
        return ["sleep", "600"]

    def claim(self) -> None:
        self.dir.mkdir(exist_ok=True)
        self._claim_dir()


def test_an_old_up_that_ends_spares_the_cluster_that_has_its_directory_now(directory: Path) -> None:
    """If this failed, Ctrl-C in an old `up`, whose cluster was taken down elsewhere, would erase
    the record of the next cluster."""
    old, new = (Sleepers(DevSpec(dir=directory)) for _ in range(2))
    old.claim()
    old.start("master-1")
    assert 1 == stop(directory)
    new.claim()
    new.start("master-1")

    assert 0 == old.down()
    assert is_alive(new.member("master-1"))
    assert 1 == stop(directory)
    assert [] == living(new.state)
    new.down()  # reaps its child


def test_a_running_directory_is_refused(directory: Path) -> None:
    """If this failed, a second cluster in the directory would hide the first from `dev down`, even
    if no pid of the first was noted."""
    first = Sleepers(DevSpec(dir=directory))
    first.claim()
    first.start("supervisor-1")
    first.state.processes.clear()
    save_state(first.state)

    with pytest.raises(TorrentdistError, match="1 of its processes run"):
        Sleepers(DevSpec(dir=directory)).up()
    assert 1 == stop(directory)
    first.down()  # reaps its child
