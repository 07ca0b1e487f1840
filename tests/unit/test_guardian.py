"""Real guardians and inits of runs: what they start, what they keep, and that nothing outlives the
lease.

Each test runs in namespaces, if this host allows them, and without.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cluster_fixtures import until
from patience import patient
from small_disks import small_disk  # noqa: F401

from torrentdist.launcher import bare_program
from torrentdist.launcher.guardian_start import GUARDIAN, start_guardian, why_no_namespaces
from torrentdist.launcher.privileges import own_user
from torrentdist.launcher.process_tree import birth_of
from torrentdist.launcher.run import guardian
from torrentdist.launcher.run.output_log import CHUNK, OutputLog
from torrentdist.launcher.run.run_files import RUN_MARK, SPEC, begun, write_whole
from torrentdist.launcher.run.run_lease import NEVER, clock, read_lease
from torrentdist.supervisor.exclusivity.lease_file import LeaseFile
from torrentdist.supervisor.process import guardian_processes
from torrentdist.supervisor.process.guardian_processes import GuardianStatus, Living
from torrentdist.supervisor.process.output_files import Stream, read_output

R1, R2 = (f"r{number}-{os.getpid()}" for number in (1, 2))
"""Processes are found by their run's name on the whole machine, where other users may run these
tests too."""
LONG = 60.0


class Ward:
    """A guardian's home; the test plays the supervisor."""

    def __init__(self, home: Path, namespaces: bool) -> None:
        self.home = home
        self.namespaces = namespaces
        self.lease = home / "lease.json"
        home.mkdir()
        self.started: list[Living] = []
        self.grant(LONG)

    def grant(self, stop: float, kill: float | None = None, runs: Sequence[str] = (R1, R2)) -> float:
        """Grants a lease from now. Returns when everything has to be gone."""
        now = clock()
        times = (now + stop, now + (stop if kill is None else kill))
        write_whole(str(self.lease), msgspec.json.encode({"runs": dict.fromkeys(runs, times)}))
        return times[1]

    def orders(self, *command: str, run: str = R1, **more: Any) -> None:
        spec = {
            "run": run, "lease_file": str(self.lease), "argv": command,
            "cwd": str(self.home), "env": {"PATH": os.environ["PATH"], RUN_MARK: run}, "memory_bytes": 0,
            "grace": 5.0, "log_bytes": 1000, "log_files": 3, **more,
        }  # fmt: skip
        (self.home / SPEC).write_bytes(msgspec.json.encode(spec))

    def start(self, *command: str, run: str = R1, **more: Any) -> Living:
        self.orders(*command, run=run, **more)
        return self.launch(run)

    def launch(self, run: str = R1) -> Living:
        read, write = os.pipe2(os.O_CLOEXEC)
        living = Living(*start_guardian(str(self.home), run, write, caller=own_user(), namespaces=self.namespaces))
        os.close(write)
        self.started.append(living)
        with os.fdopen(read) as told:
            told.readline()  # it has started its worker, or ended
        return living

    def status(self, run: str = R1) -> GuardianStatus:
        status = guardian_processes.read_status(self.home, run)
        assert status is not None
        return status

    def end_of(self, living: Living, timeout: float = 10.0) -> None:
        until(lambda: birth_of(living.pid) != living.birth, seconds=timeout)
        guardian_processes.reap(living)

    def close(self) -> None:
        for living in self.started:
            guardian_processes.send(living, signal.SIGKILL)
            self.end_of(living)
        for run in (R1, R2):
            until(lambda run=run: guardian_processes.sweep(run))  # type: ignore[misc]


@pytest.fixture(params=[True, False], ids=["namespaces", "plain"])
def ward(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Ward]:
    if request.param and (why := why_no_namespaces()):
        pytest.skip(why)
    ward = Ward(tmp_path / "home", request.param)
    yield ward
    ward.close()


def alive(pid: int) -> bool:
    return birth_of(pid) is not None


def whole_family(ward: Ward, count: int = 3) -> list[int]:
    """Waits until the worker's script has started all its processes, and returns their pids."""
    until(lambda: (ward.home / "pids").exists() and len((ward.home / "pids").read_text().split()) == count)
    return guardian_processes.left_of(R1)


FAMILY = """
echo $$ >> pids
setsid sh -c 'echo $$ >> pids; trap "" TERM; (trap "" TERM; sh -c "echo \\$\\$ >> pids; sleep 60" & wait) & wait' &
wait
"""
"""A worker with a child in a session of its own and a grandchild, both of which ignore SIGTERM."""


def test_it_says_how_the_worker_ended(ward: Ward) -> None:
    """If this fails, a crash looks like success, and is never repeated."""
    for run, code, command in ((R1, 7, "exit 7"), (R2, 128 + 9, "kill -9 $$")):
        ward.end_of(ward.start("sh", "-c", command, run=run))

        assert ("gone", code, "") == (ward.status(run).state, ward.status(run).exit_code, ward.status(run).reason)


def test_a_program_that_is_not_there_is_told_of(ward: Ward) -> None:
    """If this fails, a typing error in job.toml looks like a worker that ends without a reason."""
    ward.end_of(ward.start("no-such-program"))

    assert 127 == ward.status().exit_code
    assert "No such file" in ward.status().detail


def test_a_home_on_a_disk_that_cannot_be_written_is_given_up(
    small_disk: Callable[[int], Path],  # noqa: F811
) -> None:
    """If this fails, the workers of such a host keep their barriers, and no other host can have
    them."""
    home = small_disk(1_000_000) / "home"
    home.mkdir()
    assert guardian_processes.forbid_starts(home)
    (home / SPEC).touch()
    subprocess.run(["mount", "-o", "remount,ro", str(home.parent)], check=True)

    assert guardian_processes.forbid_starts(home)


def test_stop_gives_the_worker_its_grace(ward: Ward) -> None:
    """If this fails, workers have no time to save their work."""
    living = ward.start("sh", "-c", "trap 'echo bye; exit 5' TERM; echo on; while :; do sleep 0.01; done")
    until(lambda: read_output(ward.home, Stream.STDOUT, 0).data)
    guardian_processes.send(living, signal.SIGTERM)
    ward.end_of(living)

    assert ("stop", 5) == (ward.status().reason, ward.status().exit_code)
    assert b"on\nbye\n" == read_output(ward.home, Stream.STDOUT, 0).data


@pytest.mark.skipif(os.getuid() != 0, reason="another user's process takes root")
def test_one_that_may_not_be_told_yet_is_told_later(ward: Ward) -> None:
    """If this fails, a job that is killed while a root launcher starts it ends the supervisor."""
    living = ward.start("sleep", "60")
    own = os.fork()
    if own == 0:
        try:
            os.setresuid(20000, 20000, 20000)
            os._exit(guardian_processes.send(living, signal.SIGTERM))
        finally:
            os._exit(2)
    _, status = os.waitpid(own, 0)

    assert 0 == os.waitstatus_to_exitcode(status)
    assert guardian_processes.send(living, signal.SIGKILL)
    ward.end_of(living)
    assert guardian_processes.send(living, signal.SIGKILL)


def test_after_the_grace_the_whole_tree_is_killed(ward: Ward) -> None:
    """If this fails, a worker's children go on as if it were still assigned."""
    living = ward.start("sh", "-c", FAMILY, grace=0.2)
    family = whole_family(ward)
    guardian_processes.send(living, signal.SIGTERM)
    ward.end_of(living)

    assert not [pid for pid in family if alive(pid)]
    assert "stop" == ward.status().reason


def test_what_a_worker_leaves_behind_is_ended_with_it(ward: Ward) -> None:
    """If this fails, a worker that forks into the background runs twice after a restart."""
    living = ward.start(
        "sh", "-c", FAMILY.replace("\nwait\n", "\nwhile [ $(wc -l < pids) != 3 ]; do :; done\nexit 0\n")
    )
    family = whole_family(ward)
    ward.end_of(living)

    assert not [pid for pid in family if alive(pid)]
    assert ("", 0) == (ward.status().reason, ward.status().exit_code)


@pytest.mark.case("D10")
def test_a_lease_that_is_not_renewed_ends_the_worker_by_its_end(ward: Ward) -> None:
    """If this fails, a worker whose supervisor died runs on beside the one that takes its place."""
    end = ward.grant(3.0, 3.5)  # the family needs a while on a busy machine
    living = ward.start("sh", "-c", FAMILY)
    family = whole_family(ward)
    ward.end_of(living)

    assert "lease" == ward.status().reason
    assert not [pid for pid in family if alive(pid)]
    assert end - 0.6 < ward.status().at < end + patient(0.3)


def test_a_renewed_lease_is_noticed_when_the_old_one_ends(ward: Ward) -> None:
    """If this fails, every worker ends after one lease."""
    first = ward.grant(3.0)
    living = ward.start("sleep", "60")
    second = ward.grant(4.0)
    ward.end_of(living)

    assert first < second
    assert second <= ward.status().at < second + patient(3.0)


def test_the_lease_of_another_run_is_none(ward: Ward) -> None:
    """If this fails, a worker of a lost session lives on by the lease of the next one, without a
    barrier."""
    first = ward.grant(0.3)
    living = ward.start("sleep", "60")
    ward.grant(LONG, runs=[R2])
    ward.end_of(living)

    assert ward.status().at < first + patient(3.0)


@pytest.mark.parametrize("why", ["lease", "run", "orders", "door"])
def test_a_guardian_that_comes_too_late_starts_nothing(ward: Ward, why: str) -> None:
    """If this fails, a start that came too late runs a worker that nobody knows of."""
    ward.orders("touch", str(ward.home / "ran"))
    match why:
        case "lease":
            ward.grant(-1.0)
        case "run":
            ward.grant(LONG, runs=[R2])
        case "orders":
            ward.orders("touch", str(ward.home / "ran"), run=R2)
        case "door":
            assert guardian_processes.forbid_starts(ward.home)
    ward.end_of(ward.launch())

    assert not (ward.home / "ran").exists()


def test_a_second_guardian_starts_nothing_beside_the_first(ward: Ward) -> None:
    """If this fails, a supervisor that loses count runs a worker twice on its own host."""
    first = ward.start("sleep", "60")
    second = ward.launch()
    ward.end_of(second)

    assert (first.pid, "running") == (ward.status().guardian, ward.status().state)
    assert not guardian_processes.forbid_starts(ward.home)


def test_a_killed_guardian_takes_its_worker_along_and_the_rest_is_swept(ward: Ward) -> None:
    """If this fails, workers without a guardian outlive every lease."""
    living = ward.start("sh", "-c", FAMILY)
    family = whole_family(ward)
    status = ward.status()
    guardian_processes.send(living, signal.SIGKILL)
    ward.end_of(living)
    until(lambda: not alive(status.pid))
    until(lambda: guardian_processes.sweep(R1, status))

    assert not [pid for pid in family if alive(pid)]


def test_output_is_kept_in_files_of_bounded_size(ward: Ward) -> None:
    """If this fails, a worker that prints a lot fills the disk, or its last words are lost."""
    script = "import sys\nfor i in range(1000): print('%09d' % i, flush=True)\nprint('oh', file=sys.stderr)"
    ward.end_of(ward.start(sys.executable, "-IS", "-c", script))
    files = sorted(ward.home.glob("stdout.*"))
    last = read_output(ward.home, Stream.STDOUT, -20)

    assert 3 == len(files)
    assert sum(file.stat().st_size for file in files) <= 3 * 1000
    assert (9980, b"000000998\n000000999\n") == (last.start, last.data)
    assert b"oh\n" == read_output(ward.home, Stream.STDERR, 0).data
    assert read_output(ward.home, Stream.STDOUT, 0).start == int(files[0].suffix[1:])


def test_memory_is_limited(ward: Ward) -> None:
    """If this fails, one worker uses up the memory of all."""
    script = "bytearray(300 * 1024 * 1024)"
    ward.end_of(ward.start(sys.executable, "-IS", "-c", script, memory_bytes=200 * 1024 * 1024))

    assert 1 == ward.status().exit_code
    assert b"MemoryError" in read_output(ward.home, Stream.STDERR, 0).data


@pytest.mark.parametrize("module", [GUARDIAN, guardian.INIT])
def test_it_needs_nothing_but_the_standard_library(module: str) -> None:
    """If this fails, each worker costs two processes as large as the supervisor."""
    script = f"import sys; sys.path.append({bare_program.ROOT!r}); import {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-IS", "-c", script], check=True, capture_output=True, text=True).stdout
    ours = {name for name in loaded.split() if name.startswith("torrentdist.")}

    assert not {name.partition(".")[0] for name in loaded.split()} & {"msgspec", "asyncio", "kazoo", "subprocess"}
    assert not [name for name in ours if not name.startswith("torrentdist.launcher")]


@pytest.mark.case("E4")
def test_a_lease_is_renewed_on_a_full_disk(tmp_path: Path) -> None:
    """If this fails, a disk that others fill ends every worker of the host."""
    path = tmp_path / "lease.json"
    temporary = tmp_path / "lease.json.tmp"
    temporary.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space"):
        write_whole(str(path), b"{}")
    path.write_bytes(msgspec.json.encode({"runs": {R1: (100.0, 200.0), R2: (100.0, 200.0)}}))
    temporary.symlink_to("/dev/full")
    write_whole(str(path), msgspec.json.encode({"runs": {R1: (300.0, 400.0)}}))

    assert (300.0, 400.0) == read_lease(str(path), R1)
    assert NEVER == read_lease(str(path), R2)[0]
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.case("E4")
def test_a_lease_that_has_grown_is_not_cut_on_a_full_disk(small_disk: Callable[[int], Path]) -> None:  # noqa: F811
    """Guardians could not read the half that fits, and would end every worker of the host."""
    disk = small_disk(64 * 1024)
    path = disk / "lease.json"
    write_whole(str(path), b"{}".ljust(3000))
    with suppress(OSError), (disk / "others").open("wb", buffering=0) as others:
        while True:
            others.write(bytes(4096))
    with pytest.raises(OSError, match="No space"):
        write_whole(str(path), b"{1}".ljust(9000))
    kept = path.read_bytes()
    write_whole(str(path), b"{2}".ljust(4000))

    assert (b"{}", b"{2}") == (kept.strip(), path.read_bytes().strip())


def test_a_lease_that_was_half_written_goes_at_the_next_start(tmp_path: Path) -> None:
    """If this fails, each crash of a host at the wrong moment leaves a file for ever."""
    path = tmp_path / "lease.json"
    Path(begun(str(path))).write_bytes(b'{"sess')
    LeaseFile(path)

    assert [] == list(tmp_path.iterdir())


def test_a_file_of_output_begins_with_a_whole_line(tmp_path: Path) -> None:
    """If this fails, the first line that `job logs` shows of a long output is cut in the middle."""
    log = OutputLog(str(tmp_path), "stdout", max_bytes=1000, max_files=3)
    for number in range(500):
        log.write(f"line {number:04} is whole\n".encode())
    files = sorted(tmp_path.iterdir())

    assert [3] * 2 == [len(files), len([f for f in files if f.read_bytes().startswith(b"line ")])]
    assert all(file.read_bytes().endswith(b"whole\n") for file in files)


def test_a_line_without_an_end_does_not_fill_the_disk(tmp_path: Path) -> None:
    """If this fails, a worker that prints no line breaks fills the disk of its host."""
    log = OutputLog(str(tmp_path), "stdout", max_bytes=1000, max_files=3)
    for _ in range(50):
        log.write(b"x" * 10_000)

    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 3 * (1000 + CHUNK + 10_000)


def test_output_goes_on_after_a_disk_took_no_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a worker's output ends for ever once its disk was full, or two streams are
    mixed, or a file grows without a bound."""
    logs = {name: OutputLog(str(tmp_path), name, max_bytes=1000, max_files=100) for name in ("stdout", "stderr")}
    with monkeypatch.context() as full:
        full.setattr("torrentdist.launcher.run.output_log.os.open", refuse)
        for _ in range(100):
            logs["stdout"].write(b"before\n" * 1000)
    for name, log in logs.items():
        for number in range(100):
            log.write(f"{name} {number:04}\n".encode() * 10)
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]

    for name in logs:
        kept = b"".join(file.read_bytes() for file in sorted(tmp_path.glob(f"{name}.*")))
        assert b"".join(f"{name} {number:04}\n".encode() * 10 for number in range(1, 100)) in kept
    assert max(sizes) <= 1000 + 5 * CHUNK


def refuse(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
