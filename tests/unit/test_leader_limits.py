"""What a leader does for jobs, uploads and distributions, exactly at its times and counts."""

from __future__ import annotations

import msgspec
import pytest
from records_of import bundle, job, snapshot, supervisor

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import AssignmentEntry, ClusterSnapshot, JobEntry
from torrentdist.cluster.session.znode_operations import Create, Delete, Set
from torrentdist.master.jobs.job_duties import (
    Happened,
    assignment_ops,
    cleanup_ops,
    happened,
    next_due,
    placement,
)
from torrentdist.master.jobs.job_operations import lacking, wait_ends
from torrentdist.master.jobs.lifecycle import Replicated, Replicating, WorkerEnded
from torrentdist.master.leading.leader_duties import ForgetUpload, MarkLost, TrimTombstone, duties
from torrentdist.master.policies.wave_plan import EndDistribution, HostOutcome, next_step
from torrentdist.model.configuration.config import ReplicationConfig
from torrentdist.model.ids import BundleId, JobId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState
from torrentdist.model.records import (
    AssignmentRecord,
    BundleState,
    JobStatus,
    WorkerAssignment,
    decode,
)
from torrentdist.model.wire.fleet_messages import HostState
from torrentdist.model.wire.job_messages import WorkerReport, WorkerState

J = JobId("j")
H1, H2 = SupervisorId("h1"), SupervisorId("h2")


def having(entry: JobEntry, **changes: object) -> JobEntry:
    return msgspec.structs.replace(entry, record=msgspec.structs.replace(entry.record, **changes))


def with_places(
    seen: ClusterSnapshot, places: dict[SupervisorId, list[tuple[str, int]]], of: int = 2
) -> ClusterSnapshot:
    entries = {
        host: AssignmentEntry(
            AssignmentRecord(
                workers=tuple(WorkerAssignment(job=JobId(name), worker=k, of=of) for name, k in workers), generation=7
            ),
            5,
        )
        for host, workers in places.items()
    }
    return msgspec.structs.replace(seen, assignments=entries)


# jobs


@pytest.mark.parametrize(("now", "starts"), [(69.9, False), (70.0, True), (70.1, True)])
def test_a_job_stops_waiting_at_its_moment(now: float, starts: bool) -> None:
    """A7: a job would wait for one more look of the leader, or start too early."""
    entry = msgspec.structs.replace(job("j", ["code"], JobStatus.REPLICATING), mtime=10.0)
    seen = snapshot([bundle("code")], jobs=[entry])

    assert ([Happened(J, Replicated(now))] if starts else []) == happened(seen, {}, server_now=now, max_wait_secs=60.0)
    assert 70.0 == wait_ends(entry, 60.0) == next_due(seen, 60.0, 1e9)
    assert 10.0 == wait_ends(entry, 0.0)
    assert None is wait_ends(entry, -1.0)


def test_a_submitted_job_begins_to_wait_for_its_bundles() -> None:
    """A2: a job would stay submitted for ever."""
    seen = snapshot(jobs=[job("j", ["code"], JobStatus.SUBMITTED)])

    assert [Happened(J, Replicating(5.0))] == happened(seen, {}, server_now=5.0, max_wait_secs=60.0)
    assert None is wait_ends(seen.jobs[J], 60.0)
    assert "bundle code is not there" == lacking(seen, seen.jobs[J].record)


@pytest.mark.parametrize("status", [JobStatus.ACTIVE, JobStatus.INACTIVE, JobStatus.REBALANCING, JobStatus.KILLED])
def test_an_end_is_taken_once_and_with_the_host_that_ran_it(status: JobStatus) -> None:
    """A2: the end of a worker would be lost, counted twice, or counted for a job that is being
    killed."""
    seen = with_places(
        snapshot([bundle("b")], jobs=[having(job("j", ["b"], status), workers=2, exits={"0": 0})]),
        {H1: [("j", 0)], H2: [("j", 1)]},
    )
    ended = {
        (J, k): WorkerReport(job=J, worker=k, state=WorkerState.ENDED, exit_code=3, application="app", detail="why")
        for k in range(3)
    }
    expected = [] if status is JobStatus.KILLED else [Happened(J, WorkerEnded(9.0, 1, 3, "app", "why", H2))]

    assert expected == happened(seen, ended, server_now=9.0, max_wait_secs=60.0)
    assert [] == happened(seen, {}, server_now=9.0, max_wait_secs=60.0)
    running = {key: msgspec.structs.replace(report, state=WorkerState.RUNNING) for key, report in ended.items()}
    assert [] == happened(seen, running, server_now=9.0, max_wait_secs=60.0)


def test_only_a_job_that_keeps_its_places_has_workers() -> None:
    """A2: the workers of a job that has ended would keep their slots for ever."""
    host = msgspec.structs.replace(supervisor("h1"), slots=4)
    states = {"a": JobStatus.ACTIVE, "d": JobStatus.FINISHED, "e": JobStatus.REPLICATING}
    jobs = [having(job(name, ["b"], state), workers=1) for name, state in states.items()]
    seen = with_places(snapshot([bundle("b")], supervisors=[host], jobs=jobs), {H1: [("d", 0), ("e", 0)]})
    (taken, given) = assignment_ops(seen)

    assert isinstance(taken, Set)
    assert isinstance(given, Set)
    assert (5, 6) == (taken.version, given.version)
    first, second = (decode(op.data, AssignmentRecord, path=op.path) for op in (taken, given))
    assert ((), 8) == (first.workers, first.generation)
    assert (("a",), 9) == (tuple(worker.job for worker in second.workers), second.generation)


def test_a_first_worker_makes_the_assignment_of_its_host() -> None:
    """D1: a new supervisor would never be given anything."""
    host = msgspec.structs.replace(supervisor("h1"), slots=4)
    seen = snapshot([bundle("b")], supervisors=[host], jobs=[having(job("a", ["b"]), workers=1)])
    (op,) = assignment_ops(seen)

    assert isinstance(op, Create)
    assert paths.assignment(H1) == op.path
    assert 1 == decode(op.data, AssignmentRecord, path=op.path).generation
    assert {} == placement(seen)


@pytest.mark.parametrize(("slots", "placed"), [(1, 1), (2, 2), (5, 2)])
def test_a_new_leader_fills_slots_that_are_free_and_moves_nobody(slots: int, placed: int) -> None:
    """D17: a host would be given more workers than it has slots, or a worker would move although
    its host is only slow to come back."""
    host = msgspec.structs.replace(supervisor("h1"), slots=slots)
    seen = with_places(
        snapshot([bundle("b")], supervisors=[host], jobs=[having(job("j", ["b"]), workers=3)]),
        {H1: [("j", 0)], H2: [("j", 1)]},
        of=3,
    )
    ops = assignment_ops(seen, settled=False)
    workers = {op.path: len(decode(op.data, AssignmentRecord, path=op.path).workers) for op in ops}  # type: ignore[union-attr]

    assert ({} if placed == 1 else {paths.assignment(H1): placed}) == workers


def test_records_are_deleted_only_when_they_were_useless_for_long() -> None:
    """A user would not find the end of a job, or records would fill ZooKeeper."""
    ended = msgspec.structs.replace(job("j", ["b"], JobStatus.FINISHED), mtime=100.0, version=4)
    seen = with_places(snapshot(jobs=[ended, job("lives", ["b"])]), {H1: [], H2: [("lives", 0)]})
    orphan = Delete(paths.assignment(H1), 5)

    assert [orphan] == cleanup_ops(seen, 160.0, 60.0)
    assert [Delete(paths.job(J), 4), orphan] == cleanup_ops(seen, 160.1, 60.0)
    assert [] == cleanup_ops(seen, 59.0, 60.0)


# uploads and tombstones

CONFIG = ReplicationConfig(abandon_secs=100.0, tombstone_secs=1000.0)


@pytest.mark.parametrize(
    ("age", "led_for", "forgotten"), [(100.1, 60.1, True), (100.0, 100.1, False), (100.1, 60.0, False)]
)
def test_an_upload_is_forgotten_only_after_its_whole_time(age: float, led_for: float, forgotten: bool) -> None:
    """A20: an upload would be forgotten while its sender is about to go on."""
    seen = snapshot([bundle("a", state=BundleState.UPLOADING, mtime=5000.0 - age)])
    found = duties(seen, active=set(), lost=[], led_for=led_for, server_now=5000.0, config=CONFIG)

    assert ([ForgetUpload(BundleId("a"))] if forgotten else []) == found


def test_a_tombstone_goes_after_its_whole_time() -> None:
    """A16: a removed bundle would come back from a master that was away."""
    for age, gone in ((1000.0, False), (1000.1, True)):
        seen = snapshot([bundle("a", state=BundleState.REMOVED, mtime=5000.0 - age)])
        found = duties(seen, active=set(), lost=[], led_for=1e6, server_now=5000.0, config=CONFIG)

        assert ([TrimTombstone(BundleId("a"))] if gone else []) == found


def test_only_the_bundles_that_are_asked_about_are_looked_at() -> None:
    """A leader would look at all bundles for each change of one."""
    seen = snapshot([bundle(name, state=BundleState.REMOVED) for name in ("c", "b", "a")])
    found = duties(
        seen, active=set(), lost=[], led_for=1e6, server_now=5000.0, config=CONFIG, among=[BundleId("b"), BundleId("a")]
    )

    assert [TrimTombstone(BundleId("a")), TrimTombstone(BundleId("b"))] == found


# distributions


@pytest.mark.parametrize(
    ("lacking_hosts", "said"),
    [
        (0, ""),
        (1, "these hosts lack it: h0 (no room)"),
        (5, "these hosts lack it: h0 (no room), h1 (no room), h2 (no room), h3 (no room), h4 (no room)"),
        (7, "these hosts lack it: h0 (no room), h1 (no room), h2 (no room), h3 (no room), h4 (no room) and 2 more"),
    ],
)
def test_the_end_of_a_distribution_names_who_lacks_it(lacking_hosts: int, said: str) -> None:
    """An operator would have to search thousands of hosts for the few that failed."""
    hosts = tuple(SupervisorId(f"h{number}") for number in range(9))
    outcomes = {
        host: HostOutcome(HostState.STUCK, 1e6, "no room") if n < lacking_hosts else HostOutcome(HostState.DONE)
        for n, host in enumerate(hosts)
    }
    order = DistributionRecord(bundle=BundleId("b"), hosts=hosts)

    assert EndDistribution(DistributionState.COMPLETE, said) == next_step(order, set(hosts), outcomes, 10.0)


@pytest.mark.parametrize(
    ("state", "secs", "broken", "failed"),
    [
        (HostState.STUCK, 9.9, False, False),
        (HostState.STUCK, 10.0, True, True),
        (HostState.WAITING, 10.0, True, False),
        (HostState.FETCHING, 1e6, False, False),
        (HostState.DONE, 1e6, False, False),
    ],
)
def test_a_host_is_broken_after_exactly_the_patience(state: HostState, secs: float, broken: bool, failed: bool) -> None:
    """A wave would wait for a broken host for ever, or give up one that fetches."""
    outcome = HostOutcome(state, secs)

    assert (broken, failed) == (outcome.broken(10.0), outcome.failed(10.0))
    assert (state is not HostState.DONE and not broken) == outcome.pending(10.0)


def test_an_upload_with_a_copy_is_not_forgotten() -> None:
    """If this fails, a master's copy of an upload is lost while its master restarts."""
    entry = bundle("a", state=BundleState.UPLOADING, holders=["away"])
    found = duties(snapshot([entry]), active=set(), lost=[], led_for=1e6, server_now=5000.0, config=CONFIG)
    assert [] == found


def test_only_an_available_bundle_that_was_absent_for_long_is_lost() -> None:
    """If this fails, a restart of all masters marks every bundle as lost, or a lost one stays
    available."""
    names = ("absent", "held", "young", "uploading", "lost")
    entries = [bundle("absent"), bundle("held", holders=["m1"]), bundle("young")]
    entries += [bundle("uploading", state=BundleState.UPLOADING), bundle("lost", state=BundleState.LOST)]
    lost = [BundleId(name) for name in names if name != "young"]
    found = duties(snapshot(entries), active=set(), lost=lost, led_for=0.0, server_now=0.0, config=CONFIG)
    assert [MarkLost(BundleId("absent"))] == found
