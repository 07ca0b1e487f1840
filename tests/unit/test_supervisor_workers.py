"""What surrounds a supervisor's workers: their places, local state on disk, directories,
environment, output."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from torrentdist.cluster import paths
from torrentdist.cluster.session.znode_operations import SessionId
from torrentdist.launcher.run.run_files import SPEC
from torrentdist.launcher.run.run_lease import clock, read_lease
from torrentdist.model.configuration.settings import WORKER_VARIABLES
from torrentdist.model.ids import BundleId, JobId, MasterId
from torrentdist.model.jobs.job import JobSpec, OnIsolation, Resources, parse_job
from torrentdist.model.records import AssignmentRecord, WorkerAssignment
from torrentdist.model.wire.ha_views import OutageView
from torrentdist.supervisor.exclusivity.barriers import Seat
from torrentdist.supervisor.exclusivity.isolation import Known, is_proof
from torrentdist.supervisor.exclusivity.lease_file import Inherited, LeaseFile, ToProve
from torrentdist.supervisor.jobs import local_state, placement
from torrentdist.supervisor.jobs.local_state import JobFacts, LocalState, RunRecord, WorkerPlace
from torrentdist.supervisor.process.guardian_processes import boot_id
from torrentdist.supervisor.process.last_words import MOST_CHARACTERS, end_of_stderr, last_line, why_failed
from torrentdist.supervisor.process.launching import Program, command_of, environment, prepare
from torrentdist.supervisor.process.output_files import Stream, read_output
from torrentdist.supervisor.process.worker_homes import Homes, clean_up, drop_old_output, write_peers
from torrentdist.supervisor.worker.worker_types import Life, Run, RunLease

ETL = JobId("etl")
BLIND = OutageView(sees=False, newest=4)
RUN = RunRecord(
    id="run-1", incarnation="1", session=7, fencing=42, grace_secs=1.0, lenient=False, started_at=0.0,
    needs=(BundleId("b"),),
)  # fmt: skip


def facts(incarnation: str = "1", **spec: Any) -> JobFacts:
    fields = {"name": "etl", "command": ("run.sh", "-v"), **spec}
    return JobFacts(
        incarnation=incarnation,
        bundle=BundleId("b"),
        dependencies=(BundleId("d"),),
        workers=3,
        spec=JobSpec(**fields),
    )


def record(*workers: int, generation: int = 1, inactive: tuple[int, ...] = ()) -> AssignmentRecord:
    told = [WorkerAssignment(job=ETL, worker=k, active=k not in inactive) for k in (*workers, *inactive)]
    return AssignmentRecord(generation=generation, workers=tuple(told))


# places


def test_slots_are_given_and_kept_while_a_worker_is_here() -> None:
    """If this fails, two workers share a slot, or one changes its slot while it runs."""
    state = placement.follow(LocalState(), record(0, 1, 2))
    state = placement.follow(state, record(1, 2, 3, inactive=(4,), generation=2))
    kept = {place.worker: (place.slot, place.assigned, place.active) for place in state.places}

    expected = {0: (0, False, True), 1: (1, True, True), 2: (2, True, True), 3: (3, True, True), 4: (4, True, False)}
    assert expected == kept
    state = placement.follow(placement.forgotten(state, (ETL, 0)), record(1, 2, 3, 5, inactive=(4,), generation=3))
    assert 0 == next(place.slot for place in state.places if place.worker == 5)


def test_a_job_of_the_same_name_starts_anew() -> None:
    """If this fails, a job that was killed and submitted again counts as ended before it began."""
    state = placement.informed(placement.follow(LocalState(), record(0)), ETL, facts("1"))
    state = placement.lived(state, (ETL, 0), Life(restarts=4, in_a_row=4, exit_code=3, ended=True), "", 1.0)
    (same,) = placement.informed(state, ETL, facts("1", stop_grace_secs=1.0)).places
    (other,) = placement.informed(state, ETL, facts("2")).places

    assert (True, 3, 4) == (same.ended, same.exit_code, same.restarts)
    assert (False, None, 0) == (other.ended, other.exit_code, other.restarts)


@pytest.mark.case("A21")
def test_bundles_of_what_still_runs_are_needed() -> None:
    """If this fails, a bundle is dropped while a worker that uses it is being stopped."""
    state = placement.informed(placement.follow(LocalState(), record(0)), ETL, facts())
    assert {"b", "d"} == placement.needs(state)
    state = placement.follow(placement.started(state, (ETL, 0), RUN), record())

    assert {"b"} == placement.needs(state)
    assert not placement.needs(placement.lived(state, (ETL, 0), Life(), "", 1.0))


# on disk


def test_local_state_survives_a_restart_and_its_processes_do_not_survive_a_reboot(tmp_path: Path) -> None:
    """If this fails, workers are not adopted, or a process of another boot is taken for one of
    ours."""
    state = LocalState(
        boot="b1", generation=4, places=(WorkerPlace(job=ETL, worker=0, slot=2, run=RUN),), jobs={ETL: facts()}
    )
    local_state.save_state(tmp_path, state)

    assert state == local_state.load_state(tmp_path, "b1")
    (place,) = local_state.load_state(tmp_path, "b2").places
    assert (None, 2) == (place.run, place.slot)


@pytest.mark.case("E5")
@pytest.mark.parametrize("damage", [b"", b"{", b'{"schema": 99}', b'{"places": [{}]}', b'{"boot": "\xff"}'])
def test_a_damaged_local_state_is_set_aside_and_its_session_given_up(tmp_path: Path, damage: bytes) -> None:
    """If this fails, a supervisor never starts again, or keeps barriers of which it knows
    nothing."""
    local_state.save_seat(tmp_path, boot_id(), Seat(SessionId(1, b"secret"), "host-1"))
    (tmp_path / local_state.STATE).write_bytes(damage)
    left = local_state.read_left(tmp_path)

    assert ((), None) == (left.state.places, left.seat)
    assert damage == (tmp_path / "workers.damaged").read_bytes()


def test_the_sessions_password_is_its_owners(tmp_path: Path) -> None:
    """If this fails, any user of the host can end the session, and so move every worker."""
    seat = Seat(SessionId(1, b"\0\xffsecret"), "host-1")
    local_state.save_seat(tmp_path, "b1", seat)
    path = tmp_path / local_state.SEAT

    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert (seat, None) == (local_state.load_seat(tmp_path, "b1"), local_state.load_seat(tmp_path, "b2"))
    path.chmod(0o644)
    assert local_state.load_seat(tmp_path, "b1") is None


# directories


@pytest.fixture
def content(tmp_path: Path) -> Path:
    top = tmp_path / "content"
    (top / "bin").mkdir(parents=True)
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "bin" / "sh").write_text("ours")
    return top


def program(content: Path, **spec: Any) -> Program:
    place = WorkerPlace(job=ETL, worker=1, slot=2)
    return Program(place, facts(**spec).spec, 3, content, {BundleId("d"): content / "bin"})


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("run.sh", "/w/bundle/run.sh"),
        ("bin/sh", "/w/bundle/bin/sh"),
        ("sh", "sh"),
        ("/bin/sh", "/bin/sh"),
        ("bin", "bin"),
        ("../content/run.sh", "../content/run.sh"),
    ],
)
def test_a_program_of_the_bundle_comes_first(content: Path, named: str, found: str) -> None:
    """If this fails, a job runs a program of the host in place of its own, or one outside its
    bundle."""
    spec = JobSpec(name="etl", command=(named, "-v"))

    assert [found, "-v"] == command_of(spec, content, Path("/w"))


def test_the_environment_is_the_hosts_the_jobs_and_ours(tmp_path: Path, content: Path) -> None:
    """If this fails, a worker doesn't know who it is, or sees the supervisor's own settings."""
    base = {"PATH": "/bin", "LANG": "C", "TORRENTDIST_API_TOKEN_FILE": "/secret"}
    spec = {"env": {"LANG": "de", "TORRENTDIST_WORKER": "9"}}
    env = environment(base, Homes(tmp_path), program(content, **spec), RUN)

    assert ("/bin", "de", "1", "3", "42") == tuple(
        env[name] for name in ("PATH", "LANG", "TORRENTDIST_WORKER", "TORRENTDIST_WORKERS", "TORRENTDIST_FENCING")
    )
    assert "TORRENTDIST_API_TOKEN_FILE" not in env


def test_a_worker_may_run_our_programs(tmp_path: Path, content: Path) -> None:
    """If this fails, `torrentdist` in a job fails at a variable that its own supervisor set."""
    env = environment({}, Homes(tmp_path), program(content), RUN)

    assert set() == {name for name in env if name.startswith("TORRENTDIST_")} - WORKER_VARIABLES


def test_a_worker_finds_its_bundles_whatever_it_did_before(tmp_path: Path, content: Path) -> None:
    """If this fails, a worker that changed its directory can never be started again, or loses its
    own files."""
    homes = Homes(tmp_path)
    prepare(homes, program(content), RUN)
    work = homes.work((ETL, 1))
    (work / "mine").write_text("kept")
    (work / "bundle").unlink()
    (work / "bundle").mkdir()
    (work / "bundle" / "junk").touch()
    (work / "deps" / "d").unlink()
    (work / "deps").rmdir()
    (work / "deps").symlink_to(content)
    prepare(homes, program(content, resources=Resources(memory_bytes=5)), RUN)

    assert (content, content / "bin") == ((work / "bundle").readlink(), (work / "deps" / "d").readlink())
    assert "kept" == (work / "mine").read_text()
    assert {"bin", "run.sh"} == set(os.listdir(content))


def test_the_bundles_entries_are_in_the_workers_directory(tmp_path: Path, content: Path) -> None:
    """If this fails, relative paths don't lead to the bundle's files, or a bundle hides `bundle`
    and `deps`."""
    for name in ("bundle", "deps"):
        (content / name).mkdir()
        (content / name / "inner").touch()
    homes = Homes(tmp_path)
    prepare(homes, program(content), RUN)
    work = homes.work((ETL, 1))

    assert {"bin", "run.sh", "bundle", "deps"} == set(os.listdir(work))
    assert ("#!/bin/sh\n", "ours") == ((work / "run.sh").read_text(), (work / "bin" / "sh").read_text())
    assert (content, ["d"]) == ((work / "bundle").readlink(), os.listdir(work / "deps"))


def test_a_restart_clears_links_of_an_older_bundle_and_spares_what_the_worker_made(
    tmp_path: Path, content: Path
) -> None:
    """If this fails, a worker sees files of a bundle that it does not run, or loses its own
    files."""
    homes = Homes(tmp_path)
    prepare(homes, program(content), RUN)
    work = homes.work((ETL, 1))
    (work / "run.sh").unlink()
    (work / "run.sh").write_text("the worker's own")
    (work / "mine").symlink_to("bundle/other")
    newer = tmp_path / "newer"
    newer.mkdir()
    (newer / "run.sh").touch()
    (newer / "main.py").write_text("new")
    prepare(homes, program(newer), RUN)

    assert {"main.py", "run.sh", "mine", "bundle", "deps"} == set(os.listdir(work))
    assert ("the worker's own", "new") == ((work / "run.sh").read_text(), (work / "main.py").read_text())


def test_python_writes_no_cache_beside_the_bundles_modules(tmp_path: Path, content: Path) -> None:
    """If this fails, a job changes published content, or a job.toml can make it do so."""
    env = environment({}, Homes(tmp_path), program(content, env={"PYTHONDONTWRITEBYTECODE": ""}), RUN)

    assert "1" == env["PYTHONDONTWRITEBYTECODE"]


def test_the_example_runs_in_its_workers_directory(tmp_path: Path) -> None:
    """If this fails, the first job that a new user copies does not find its own files."""
    homes, content = Homes(tmp_path / "data"), tmp_path / "content"
    shutil.copytree(Path(__file__).parents[2] / "examples" / "tally", content)
    before = sorted(content.rglob("*"))
    job = parse_job((content / "job.toml").read_text(), origin="job.toml")
    example = Program(WorkerPlace(job=ETL, worker=1, slot=0), job, job.workers, content, {})
    spec = msgspec.json.decode((prepare(homes, example, RUN) / SPEC).read_bytes())
    subprocess.run(spec["argv"], cwd=spec["cwd"], env=spec["env"], check=True, capture_output=True)

    assert '{"b.txt": 2}' == (homes.work((ETL, 1)) / "counts.json").read_text()
    assert before == sorted(content.rglob("*"))


def write_stderr(home: Path, *parts: bytes) -> None:
    offset = 0
    for part in parts:
        (home / f"stderr.{offset:015d}").write_bytes(part)
        offset += len(part)


def test_the_last_words_are_of_this_run_and_of_all_its_files(tmp_path: Path) -> None:
    """If this fails, a worker seems to have failed for the reason of an earlier run."""
    write_stderr(tmp_path, b"old error\n", b"new ", b"error\n\n")

    assert 21 == end_of_stderr(tmp_path)
    assert "new error" == why_failed(tmp_path, 10, spark=False)
    assert ("", "") == (why_failed(tmp_path, 21, spark=False), why_failed(tmp_path / "none", 0, spark=False))


def test_a_spark_driver_names_the_error_and_not_its_last_line(tmp_path: Path) -> None:
    """If this fails, every driver seems to have failed with Spark's own last line."""
    write_stderr(tmp_path, b"ValueError: no data\nINFO ShutdownHookManager: bye\n")

    assert ("ValueError: no data", "INFO ShutdownHookManager: bye") == tuple(
        why_failed(tmp_path, 0, spark=spark) for spark in (True, False)
    )


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("a\nb \x1b[31mred\x07\n", "b \\x1b[31mred\\x07"),
        ("10 %\r99 %\r", "99 %"),
        ("\u202egnp.exe caf\u00e9", "\\u202egnp.exe caf\u00e9"),
        ("x" * 9000, "x" * (MOST_CHARACTERS - 1) + "…"),
        ("\x1b" * 9000, ("\\x1b" * MOST_CHARACTERS)[: MOST_CHARACTERS - 1] + "…"),
        (" \n\n", ""),
    ],
)
def test_a_last_line_cannot_steer_a_terminal_and_is_bounded(said: str, told: str) -> None:
    """If this fails, a job controls the terminal of a user who lists jobs, or fills every answer of
    the masters."""
    assert told == last_line(said)


def test_what_a_worker_leaves_is_cleaned_up_and_its_output_later(tmp_path: Path, content: Path) -> None:
    """If this fails, a host fills up with what workers left, or a user cannot read why one
    failed."""
    homes, key = Homes(tmp_path), (ETL, 1)
    home = prepare(homes, program(content), RUN)
    (home / "stdout.000").write_bytes(b"last words")
    write_peers(homes, ETL, {"0": "h"})
    clean_up(homes, key)

    assert not (tmp_path / "workers" / "etl").exists()
    assert {"bin", "run.sh"} == set(os.listdir(content))
    drop_old_output(homes, [], 3600.0)
    assert b"last words" == read_output(home, Stream.STDOUT, 0).data
    drop_old_output(homes, [key], 0.0)
    assert home.exists()
    os.utime(home, (0, 0))
    drop_old_output(homes, [], 3600.0)
    drop_old_output(homes, [], 3600.0)
    assert [] == list((tmp_path / "guard").iterdir())


def test_output_is_one_sequence_over_its_files(tmp_path: Path) -> None:
    """If this fails, a user who follows a log sees parts twice or never."""
    (tmp_path / "stdout.000000000000010").write_bytes(b"abc")
    (tmp_path / "stdout.000000000000013").write_bytes(b"defg")
    (tmp_path / "stderr.000000000000000").write_bytes(b"err")
    read = {offset: read_output(tmp_path, Stream.STDOUT, offset) for offset in (0, 11, 13, 17, 99, -2, -50)}

    assert {0: (10, b"abc"), 11: (11, b"bc"), 13: (13, b"defg"), 17: (17, b""), 99: (17, b""), -2: (15, b"fg"),
            -50: (10, b"abc")} == {offset: (piece.start, piece.data) for offset, piece in read.items()}  # fmt: skip
    assert (0, b"") == (read_output(tmp_path / "none", Stream.STDOUT, 5).start, b"")


# leases


SESSION = 7
NEVER = (float("-inf"), float("-inf"))
A, B, C = ((MasterId(id_), f"http://{id_}") for id_ in "abc")
TO_PROVE = ToProve(4.0, {A[0]: (A[1], 12.5)}, informed=True)


def of(isolation: OnIsolation = OnIsolation.STOP, session: int = SESSION) -> Run:
    return Run("1", session, 1.0, isolation)


def test_a_proof_prolongs_what_the_barriers_allow_and_never_shortens_it(tmp_path: Path) -> None:
    """If this fails, an outage that all masters see ends workers, or a late proof shortens their
    time."""
    path, now = tmp_path / "guard" / "lease.json", clock()
    file = LeaseFile(path)
    runs = {"here": (of(), True), "taken": (of(), False), "before": (of(session=6), True)}
    granted, proven = (now + 1.0, now + 2.0), (now + 3.0, now + 3.5)
    for moment, here, before in ((now, granted, (now, now + 0.5)), (now + 3.0, proven, proven)):
        file.write(RunLease(SESSION, *granted, proven=moment, ending=0.5), 5.0, runs, TO_PROVE)
        read = {name: read_lease(str(path), name) for name in ("here", "taken", "before", "unknown")}
        expected = {"here": here, "taken": granted, "before": before, "unknown": NEVER}

        assert {name: pytest.approx(limits) for name, limits in expected.items()} == read
    assert Inherited(stop=proven[0], kill=proven[1], proven=now + 3.0, to_prove=TO_PROVE) == file.read(SESSION)
    assert Inherited(proven=now + 3.0, to_prove=TO_PROVE) == file.read(8), "a proof needs no session"


def test_one_that_runs_on_when_isolated_hears_of_us_now_and_then(tmp_path: Path) -> None:
    """If this fails, on_isolation = "run" has no effect, or outlives its supervisor or its session
    for ever."""
    path, now = tmp_path / "lease.json", clock()
    runs = {"run": (of(OnIsolation.RUN), True), "before": (of(OnIsolation.RUN, session=6), True)}
    LeaseFile(path).write(RunLease(SESSION, now + 1.0, now + 2.0, ending=1.0), 5.0, runs, ToProve())

    assert (now + 5.0, now + 6.0) == pytest.approx(read_lease(str(path), "run"), abs=0.5)
    assert (0.0, 0.0) == read_lease(str(path), "before")


@pytest.mark.case("D10")
@pytest.mark.parametrize(
    ("said", "proof"),
    [
        ({A: BLIND, B: BLIND, C: BLIND}, True),
        ({A: BLIND, B: BLIND, C: None}, False),
        ({A: BLIND, B: BLIND, C: OutageView(sees=True, newest=4)}, False),
        ({A: BLIND, B: BLIND, C: OutageView(sees=False, newest=5)}, False),
        ({A: BLIND, B: BLIND, C: OutageView(sees=False, newest=None)}, False),
        ({A: BLIND, B: BLIND, C: OutageView(sees=False, newest=3)}, False),
        ({A: BLIND, B: OutageView(sees=False, newest=4, masters=dict([A, B]))}, True),
        ({A: BLIND, B: OutageView(sees=False, newest=4, masters=dict([A, B, C]))}, False),
        ({A: BLIND, B: OutageView(sees=False, newest=4, masters={A[0]: "http://it-moved"})}, False),
        ({}, False),
    ],
)
def test_only_all_masters_together_prove_that_nobody_was_given_our_place(
    said: Mapping[Known, OutageView | None], proof: bool
) -> None:
    """If this fails, a host on the wrong side of a partition runs a worker that a leader has moved,
    or is about to move."""
    assert proof is is_proof(said, 4)


def test_no_two_workers_have_one_barrier() -> None:
    """If this fails, two workers exclude each other, or an exclusive worker has no barrier of its
    own."""
    long = "x" * 127
    jobs = ["a", "a.1", "a.1.2", long + "y", long + "z", "x" * 100, "x" * 101]
    resources = [paths.worker_resource(JobId(job), k) for job in jobs for k in (0, 1, 2, 9999)]

    assert len(set(resources)) == len(resources)
    assert all(paths.JOB_GROUP.barrier(resource) for resource in resources)
