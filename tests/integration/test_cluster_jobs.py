"""A job's whole life on 3 masters and 3 supervisors, through the command line, while members of the
cluster die.

Always: the workers themselves write down when they run (worker_oracle.py), whatever the cluster
believes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cluster_fixtures import Cluster, NewCluster, Settings, running_cluster, until
from worker_oracle import Oracle, make_worker_bundle

from torrentdist.launcher.process_tree import birth_of

WORKERS = 4
PATIENCE_SECS = 45.0
RESTART_SESSION_SECS = 30.0
PATIENT: Settings = {"zookeeper": {"session_timeout_secs": RESTART_SESSION_SECS}}
"""For tests that restart a supervisor: its workers run on without it for half a session, and a busy
machine needs seconds to start it."""
SETTINGS: Settings = {"swarm": {"seeding_secs": 2.0}, "jobs": {"silent_secs": 10.0}}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """3 masters and 3 supervisors of this file's own."""
    with running_cluster(SETTINGS, supervisors=3) as cluster:
        yield cluster


@pytest.fixture
def oracle(tmp_path: Path) -> Oracle:
    return Oracle(tmp_path / "oracle")


def made(
    directory: Path, oracle: Oracle, name: str, *arguments: str, size: int = 0, workers: int = WORKERS, more: str = ""
) -> Path:
    """Makes a directory with a job whose workers write down when they run."""
    make_worker_bundle(directory)
    (directory / "padding.bin").write_bytes(os.urandom(size))
    command = msgspec.json.encode(["work.py", *arguments]).decode()
    (directory / "job.toml").write_text(
        f'name = "{name}"\ncommand = {command}\nworkers = {workers}\nstop_grace_secs = 3\n{more}\n'
        f'[env]\nORACLE = "{oracle.directory}"\n'
    )
    return directory


def job(cluster: Cluster, name: str) -> Any:
    ran = cluster.run("job", "show", name)
    return ran.json if ran.code == 0 else None


def seen(cluster: Cluster, name: str) -> Any:
    """Returns the job with its story, by the leader's answer: a look that costs no process. None
    after any failure."""
    return cluster.get(cluster.leader(), f"/v1/jobs/{name}?events=true")


def is_gone(cluster: Cluster, name: str) -> bool:
    return cluster.status(cluster.leader(), f"/v1/jobs/{name}") == 404


def running(cluster: Cluster, name: str) -> dict[int, tuple[str, int]]:
    """Returns supervisor and process of each running worker, as the leader believes."""
    view = cluster.get(cluster.leader(), f"/v1/jobs/{name}")
    workers = view["workers"] if view else []
    return {w["worker"]: (w["supervisor"], w["pid"]) for w in workers if w["state"] == "running" and w["pid"]}


def wait_running(cluster: Cluster, name: str, workers: int = WORKERS) -> dict[int, tuple[str, int]]:
    """Returns what `running` says once all workers run. A later look might differ: a supervisor
    that started again a moment ago has yet to report."""
    seen: dict[int, tuple[str, int]] = {}

    def all_run() -> bool:
        seen.clear()
        seen.update(running(cluster, name))
        return len(seen) == workers

    until(all_run, f"{workers} workers of {name} run", PATIENCE_SECS)
    return seen


@pytest.mark.alone
@pytest.mark.case("A3")
@pytest.mark.case("A4")
@pytest.mark.case("A28")
def test_a_job_from_submit_to_cleanup_while_members_die(
    new_cluster: NewCluster, oracle: Oracle, tmp_path: Path
) -> None:
    """If this fails, the death of a member loses, doubles or forgets a job, or a killed job does
    not end. It takes long: each member dies and starts again."""
    cluster = new_cluster(SETTINGS, supervisors=3)
    for name in cluster.supervisors()[:2]:
        cluster.reconfigure(name, PATIENT)
    directory = made(tmp_path / "story", oracle, "story", size=6_000_000)

    # the leader dies in the middle of the submit
    submit = cluster.begin("job", "submit", directory, swarm__upload_limit=4_000_000)
    first = cluster.leader()
    until(lambda: cluster.get(first, "/v1/bundles"), "the upload has begun")
    cluster.kill(first)
    submitted = submit.end().ok()
    id_ = submitted["id"]
    places = wait_running(cluster, id_)
    cluster.start(first)
    printed = cluster.run("job", "logs", "story").ok()
    following = cluster.begin("job", "logs", id_, "-f")

    # a supervisor is started again, in peace and after a kill -9: its workers stay what they are
    used = sorted({supervisor for supervisor, _ in places.values()})
    for name, number in zip(used, (signal.SIGTERM, signal.SIGKILL), strict=False):
        cluster.dev.signal(name, number)
        cluster.reconfigure_stopped(name, PATIENT)
    after_restart = wait_running(cluster, id_)

    # a supervisor dies for good: its workers move
    victim = used[2]
    cluster.kill(victim)
    died = time.monotonic()
    until(lambda: victim not in {s for s, _ in wait_running(cluster, id_).values()}, "its workers moved", PATIENCE_SECS)
    moved_after = time.monotonic() - died
    moved = wait_running(cluster, id_)
    in_use = cluster.run("bundle", "rm", submitted["bundle"])
    events = told(cluster, id_, "moved")

    # killed with a delay, during which the leader dies
    killed_at = time.monotonic()
    killed = cluster.run("job", "kill", id_, "-w", "5").ok()
    cluster.kill(cluster.leader())
    until(lambda: all(birth_of(pid) is None for _, pid in moved.values()), "its workers end", PATIENCE_SECS)
    still = job(cluster, id_)
    until(lambda: is_gone(cluster, id_), "it is removed", PATIENCE_SECS)
    removed_after = time.monotonic() - killed_at
    followed = [msgspec.json.decode(line) for line in following.end().stdout.splitlines()]

    assert sorted(used) == sorted(cluster.supervisors())
    assert sorted(line["line"] for line in printed) == [f"hello from {id_}.{k}" for k in range(WORKERS)]
    assert {(line["worker"], line["supervisor"]) for line in followed} == {
        (k, supervisor) for lives in (places, moved) for k, (supervisor, _) in lives.items()
    }
    assert places == after_restart
    assert {k: place for k, place in places.items() if place[0] != victim} == {
        k: place for k, place in moved.items() if places[k][0] != victim
    }
    assert killed["status"] == "killed"
    assert still is None or (still["due_in"] or 0) < 5
    assert 5 <= removed_after < 8.5, "the deadline was restarted, or forgotten"
    assert moved_after < 20
    for worker in range(WORKERS):  # stints() fails if two of one worker ran at once
        stints = oracle.stints(id_, worker)
        assert len(stints) == (2 if places[worker][0] == victim else 1)
        assert [s.fencing for s in stints] == sorted({s.fencing for s in stints})
    assert leftovers(cluster) == []
    assert not cluster.run("job", "ls").ok()
    assert (in_use.code, id_ in in_use.stderr) == (9, True)
    assert cluster.run("bundle", "prune", "--cluster").ok()["removed"] == [submitted["bundle"]]
    kinds = [event["event"] for event in events if event["worker"] in (None, 0)]
    assert kinds[:6] == ["submitted", "replicated", "activated", "assigned", "fetched", "started"]
    assert {e["worker"] for e in events if e["event"] == "moved"} == {k for k in places if places[k][0] == victim}


def told(cluster: Cluster, name: str, kind: str) -> list[dict[str, Any]]:
    """Waits until the job's story has such an event, and returns the story."""
    found: list[dict[str, Any]] = []

    def look() -> bool:
        view = seen(cluster, name)
        found[:] = view["events"] if view else []
        return any(event["event"] == kind for event in found)

    until(look, f"the story tells of {kind}", PATIENCE_SECS)
    return found


def leftovers(cluster: Cluster) -> list[str]:
    """Returns what jobs have left on the hosts that are up, after some time."""
    found: list[str] = []

    def look() -> bool:
        found[:] = [
            str(path.relative_to(cluster.dir))
            for name in cluster.supervisors()
            if cluster.alive(name)
            for pattern in ("workers/*", "guard/*/*/spec.json")
            for path in cluster.store(name).glob(pattern)
        ]
        return not found

    with contextlib.suppress(pytest.fail.Exception):
        until(look, "nothing is left", 10.0)
    return found


def test_a_supervisor_that_hangs_with_its_session_alive_loses_its_workers(
    cluster: Cluster, oracle: Oracle, tmp_path: Path
) -> None:
    """C7: if this fails, its workers run nowhere for as long as it hangs. It takes long: workers
    start on two hosts, one after the other."""
    cluster.heal()
    victim = cluster.supervisors()[0]
    cluster.dev.programs[victim] = "hanging_daemon.py"
    cluster.dev.signal(victim, signal.SIGTERM)
    cluster.start(victim)
    del cluster.dev.programs[victim]
    cluster.dev.wait_ready()
    id_ = cluster.run("job", "submit", made(tmp_path / "hang", oracle, "hang", workers=3)).ok()["id"]
    places = wait_running(cluster, id_, 3)
    cluster.dev.signal(victim, signal.SIGUSR2)

    def elsewhere() -> bool:
        now = running(cluster, id_)
        return len(now) == 3 and victim not in {supervisor for supervisor, _ in now.values()}

    def silent() -> list[str]:
        view = cluster.get(cluster.leader(), "/v1/cluster") or {"supervisors": []}
        return [row["id"] for row in view["supervisors"] if row["silent_secs"]]

    until(lambda: silent() == [victim], "the leader says who is silent", PATIENCE_SECS)
    listed = [row["id"] for row in cluster.run("supervisor", "ls").ok() if row["silent_secs"]]
    until(elsewhere, "its workers run elsewhere", PATIENCE_SECS)
    moved = running(cluster, id_)
    until(lambda: not cluster.alive(victim), "it has ended itself", PATIENCE_SECS)
    cluster.run("job", "kill", "hang", "-w", "0").ok()
    until(lambda: is_gone(cluster, id_), "it is removed", PATIENCE_SECS)

    assert [victim] == listed
    assert victim in {supervisor for supervisor, _ in places.values()}
    stayed = [worker for worker, (supervisor, _) in places.items() if supervisor != victim]
    assert [places[worker] for worker in stayed] == [moved[worker] for worker in stayed]
    assert "a supervisor is silent" in "".join((cluster.dir / f"{name}.log").read_text() for name in cluster.masters())
    assert "the event loop is stuck" in (cluster.dir / f"{victim}.log").read_text()
    for worker in range(3):  # stints() fails if two of one worker ran at once
        assert len(oracle.stints(id_, worker)) == (2 if places[worker][0] == victim else 1)


@pytest.mark.case("A18")
def test_jobs_are_steered_while_another_ones_submit_is_slow(cluster: Cluster, oracle: Oracle, tmp_path: Path) -> None:
    """If this fails, a command of `job` does not do what it says, or waits for another user's
    submit. It takes long: many commands and workers run one after another."""
    cluster.heal()
    slow = made(tmp_path / "slow", oracle, "slow")
    upload = cluster.begin("upload", slow, "--id", "slow-code", "--min-replicas", "4")
    until(lambda: (cluster.get(cluster.leader(), "/v1/bundles/slow-code") or {"replicas": 0})["replicas"], "a replica")
    upload.kill()
    waiting = cluster.run("job", "submit", "slow-code").ok()  # for a fourth master, which there is not

    id_ = cluster.run("job", "submit", made(tmp_path / "etl", oracle, "etl", workers=2), "--inactive").ok()["id"]
    until(lambda: (seen(cluster, id_) or {}).get("status") == "inactive", "it is replicated")
    taken = cluster.run("job", "submit", "slow-code", "--name", "etl")
    never = oracle.stints(id_, 0)
    cluster.run("job", "activate", "etl").ok()
    first = wait_running(cluster, id_, 2)
    cluster.run("job", "deactivate", "etl").ok()
    until(lambda: all(birth_of(pid) is None for _, pid in first.values()), "they stop")
    kept = {w["worker"]: w["supervisor"] for w in job(cluster, id_)["workers"]}
    cluster.run("job", "activate", "etl").ok()
    wait_running(cluster, id_, 2)
    cluster.run("job", "rebalance", "etl", "--workers", "5").ok()
    spread = wait_running(cluster, id_, 5)
    cluster.run("job", "deactivate", "etl").ok()
    until(lambda: not running(cluster, id_), "they stop")
    cluster.run("job", "activate", "etl").ok()
    wait_running(cluster, id_, 5)
    drained = spread[0][0]
    cluster.run("supervisor", "drain", drained).ok()
    until(lambda: drained not in {s for s, _ in running(cluster, id_).values()}, "it is drained")
    wait_running(cluster, id_, 5)
    cluster.run("supervisor", "undrain", drained).ok()
    cluster.run("job", "kill", "etl", "-w", "0").ok()
    until(lambda: is_gone(cluster, id_), "it is removed")
    again = cluster.run("job", "submit", tmp_path / "etl").ok()["id"]
    cluster.run("job", "kill", again, "-w", "0").ok()

    assert waiting["status"] in ("submitted", "replicating")
    assert job(cluster, "slow")["status"] == "replicating", "the rest is not done while it waits"
    assert (taken.code, cluster.run("job", "show", "nobody").code) == (9, 3)
    assert never == []
    assert kept == {worker: supervisor for worker, (supervisor, _) in first.items()}
    assert again != id_
    for worker in range(5):
        stints = oracle.stints(id_, worker)
        assert all(stint.stopped for stint in stints)
        assert stints[-1].said["env"]["TORRENTDIST_WORKERS"] == "5"


def test_a_batch_job_ends_as_its_workers_do(cluster: Cluster, oracle: Oracle, tmp_path: Path) -> None:
    """If this fails, nobody knows whether a batch job has done its work."""
    cluster.heal()
    never = '[restart]\npolicy = "never"'
    good = cluster.run("job", "submit", made(tmp_path / "g", oracle, "good", "exit", "0", more=never, workers=2)).ok()
    bad = cluster.run("job", "submit", made(tmp_path / "b", oracle, "bad", "exit", "3", more=never, workers=2)).ok()

    def told_of(view: dict[str, Any]) -> dict[int, str]:
        return {event["worker"]: event["supervisor"] for event in view["events"] or () if event["event"] == "exited"}

    def ended() -> bool:
        views = [seen(cluster, name) for name in ("good", "bad")]
        return all(view and view["status"] in ("finished", "failed") and len(told_of(view)) == 2 for view in views)

    until(ended, "both end, and their stories say so", PATIENCE_SECS)
    views = {name: job(cluster, name) for name in ("good", "bad")}
    printed = cluster.run("job", "logs", "bad").ok()

    assert {name: view["status"] for name, view in views.items()} == {"good": "finished", "bad": "failed"}
    assert {name: [w["exit_code"] for w in view["workers"]] for name, view in views.items()} == {
        "good": [0, 0],
        "bad": [3, 3],
    }
    for name, view in views.items():
        told = told_of(view)
        assert {w["worker"]: w["supervisor"] for w in view["workers"]} == told, name
        assert len(told) == 2
        assert all(told.values())
    assert views["bad"]["reason"] == "worker 0 ended with exit code 3"
    assert views["bad"]["events"][-1]["event"] == "failed"
    assert printed == []
    assert [len(oracle.stints(view["id"], k)) for view in (good, bad) for k in range(2)] == [1, 1, 1, 1]
