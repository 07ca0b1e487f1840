"""The leader's duties towards jobs."""

from __future__ import annotations

import msgspec
import pytest
from placed_workers import H1, H2, J, changed, placed, running, with_workers
from records_of import bundle, job, snapshot, supervisor

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import AssignmentEntry, ClusterSnapshot, JobEntry
from torrentdist.cluster.session.znode_operations import MAX_REQUEST_BYTES, Create, Set, request_size
from torrentdist.master.changes.predicted_records import predicted
from torrentdist.master.jobs.job_duties import (
    Happened,
    assignment_ops,
    cleanup_ops,
    drain_ops,
    happened,
    next_due,
    ops_of,
    settling_secs,
)
from torrentdist.master.jobs.job_operations import lacking
from torrentdist.master.jobs.lifecycle import Due, Replicated, WorkerEnded
from torrentdist.model.ids import JobId, SupervisorId
from torrentdist.model.jobs.job import JobSpec, Replication, Restart, RestartPolicy
from torrentdist.model.records import (
    AssignmentRecord,
    JobRecord,
    JobStatus,
    Pending,
    PendingStep,
    WorkerAssignment,
    decode,
)
from torrentdist.model.wire.job_messages import WorkerReport, WorkerState


def test_a_job_waits_for_all_of_its_bundles() -> None:
    """A6: a job would start on hosts that cannot get what it depends on."""
    starting = job("j", ["code", "lib"], JobStatus.REPLICATING)
    half = snapshot([bundle("code", holders=["m1"]), bundle("lib")], jobs=[starting])
    whole = snapshot([bundle("code", holders=["m1"]), bundle("lib", holders=["m2"])], jobs=[starting])

    assert [] == happened(half, {}, server_now=5.0, max_wait_secs=60.0)
    assert [Happened(J, Replicated(5.0))] == happened(whole, {}, server_now=5.0, max_wait_secs=60.0)
    assert [] == happened(whole, {}, server_now=5.0, max_wait_secs=60.0, decide=lambda path, make: None)


def test_the_wait_for_replicas_ends_as_configured() -> None:
    """A7: a job would not wait, wait for ever, or never go on, against its configuration."""
    alone = snapshot([bundle("code")], jobs=[job("j", ["code"], JobStatus.REPLICATING)])
    started = [Happened(J, Replicated(5.0))]

    assert started == happened(alone, {}, server_now=5.0, max_wait_secs=0.0)
    assert started == happened(alone, {}, server_now=5.0, max_wait_secs=5.0)
    assert [] == happened(alone, {}, server_now=5.0, max_wait_secs=-1.0)


def test_a_jobs_own_word_about_replicas_stands_over_the_clusters() -> None:
    """A7: a job that must not run on the last copy, or must run at once, could not say so."""

    def waiting(**own: object) -> ClusterSnapshot:
        entry = job("j", ["code"], JobStatus.REPLICATING)
        spec = JobSpec(name="j", command=("x",), replication=msgspec.convert(own, Replication))
        record = msgspec.structs.replace(entry.record, spec=spec)
        return snapshot(
            [bundle("code", holders=["m1", "m2"])],
            masters=["m1", "m2"],
            jobs=[msgspec.structs.replace(entry, record=record)],
        )

    def starts(own: dict[str, object], now: float, max_wait: float) -> bool:
        return happened(waiting(**own), {}, server_now=now, max_wait_secs=max_wait) == [Happened(J, Replicated(now))]

    few: dict[str, object] = {"min_count": 3}

    assert starts({}, 5.0, -1.0)
    assert not starts(few, 5.0, 60.0)
    assert starts(few | {"max_wait_secs": 0.0}, 5.0, 60.0)
    assert not starts(few | {"max_wait_secs": -1.0}, 500.0, 60.0)
    assert 7.0 == next_due(waiting(**few, max_wait_secs=7.0), 60.0, 60.0)
    assert None is next_due(waiting(**few, max_wait_secs=-1.0), 60.0, 60.0)
    assert lacking(waiting(**few), waiting(**few).jobs[J].record) == "bundle code has 2 of 3 replicas"


def test_a_new_leader_finds_what_is_pending() -> None:
    """A4, A5: a kill or rebalance that only its first leader knew of would never be finished."""
    killed = job("j", ["code"], JobStatus.KILLED)
    pending = msgspec.structs.replace(killed.record, pending=Pending(step=PendingStep.REMOVE, due=10.0))
    seen = snapshot([bundle("code")], jobs=[msgspec.structs.replace(killed, record=pending)])

    assert [] == happened(seen, {}, server_now=9.0, max_wait_secs=60.0)
    assert [Happened(J, Due(10.0))] == happened(seen, {}, server_now=10.0, max_wait_secs=60.0)
    assert 10.0 == next_due(seen, 60.0, 60.0)


def test_a_dead_supervisors_workers_move() -> None:
    """C4: its workers would wait for a host that is not coming back."""
    seen = running(2, on={H1: (0,), H2: (1,)}, up=("h2",))

    assert {"h1": (), "h2": (0, 1)} == placed(assignment_ops(seen), seen)


def test_a_new_leader_moves_nobody_for_an_absence() -> None:
    """D17: after an outage every supervisor is absent for a moment, and all workers would move."""
    seen = running(2, on={H1: (0,), H2: (1,)}, up=())

    assert [] == assignment_ops(seen, settled=False)


def test_the_end_of_a_worker_is_noted_with_its_supervisor() -> None:
    """If this fails, an ended worker's host is forgotten as soon as its place goes to another
    worker."""
    seen = running(2, on={H1: (0,), H2: (1,)}, up=("h1", "h2"))
    record = seen.jobs[J].record
    spec = JobSpec(name="j", command=("true",), restart=Restart(policy=RestartPolicy.NEVER))
    seen = msgspec.structs.replace(
        seen, jobs={J: msgspec.structs.replace(seen.jobs[J], record=msgspec.structs.replace(record, spec=spec))}
    )
    report = WorkerReport(job=J, worker=1, state=WorkerState.ENDED, pid=0, exit_code=3)
    found = happened(seen, {(J, 1): report}, server_now=5.0, max_wait_secs=60.0)

    assert [Happened(J, WorkerEnded(5.0, 1, 3, supervisor=H2))] == found


def ended(worker: int, code: int = 0) -> dict[tuple[JobId, int], WorkerReport]:
    return {(J, worker): WorkerReport(job=J, worker=worker, state=WorkerState.ENDED, pid=0, exit_code=code)}


def test_the_end_of_a_worker_that_always_runs_is_noted() -> None:
    """If this fails, a job whose workers have used up their restarts stays active for ever and runs
    nothing."""
    always = JobSpec(name="j", command=("true",), restart=Restart(policy=RestartPolicy.ALWAYS))
    seen = changed(running(1, on={H1: (0,)}, up=("h1",)), spec=always)
    (found,) = happened(seen, ended(0), server_now=5.0, max_wait_secs=60.0)
    (op,) = ops_of(seen, found)

    assert Happened(J, WorkerEnded(5.0, 0, 0, supervisor=H1)) == found
    assert isinstance(op, Set)
    assert JobStatus.FAILED is decode(op.data, JobRecord, path=op.path).status


@pytest.mark.parametrize("settled", [True, False])
def test_an_end_is_noted_before_a_rebalance_moves_workers(settled: bool) -> None:
    """If this fails, an ended worker is moved to a host that has no record of its end, and runs
    again."""
    pending = Pending(step=PendingStep.REBALANCE, due=10.0, workers=2)
    seen = running(2, on={H1: (0, 1), H2: ()}, up=("h1", "h2"))
    seen = changed(seen, status=JobStatus.REBALANCING, resume=JobStatus.ACTIVE, pending=pending)
    (found,) = happened(seen, ended(1), server_now=11.0, max_wait_secs=60.0, settled=settled)
    noted = predicted(seen, ops_of(seen, found))
    moves = ops_of(noted, Happened(J, Due(11.0)))[:-1]

    assert Happened(J, WorkerEnded(11.0, 1, 0, supervisor=H1)) == found
    assert {"h1": (0,), "h2": ()} == placed(moves, noted)


def test_the_end_of_an_inactive_jobs_worker_is_noted() -> None:
    """If this fails, a worker that ends just before its job is deactivated runs again after its
    host was drained."""
    seen = changed(running(1, on={H1: (0,)}, up=("h1",)), status=JobStatus.INACTIVE)

    assert [Happened(J, WorkerEnded(5.0, 0, 3, supervisor=H1))] == happened(
        seen, ended(0, 3), server_now=5.0, max_wait_secs=60.0
    )


def test_until_it_has_settled_a_leader_moves_nobody_at_all() -> None:
    """D10, C6: a host that runs on because nobody is moved would run a worker that another host was
    just given."""
    seen = running(5, on={H1: (0, 1, 2), H2: ()}, up=("h1", "h2"))
    (drain,) = drain_ops(seen, H1, True)
    drained = predicted(seen, [drain])
    fewer = {H1: msgspec.structs.replace(seen.supervisors[H1], slots=1), H2: seen.supervisors[H2]}

    for world in (seen, drained, msgspec.structs.replace(seen, supervisors=fewer)):
        assert {0, 1, 2} <= set(placed(assignment_ops(world, settled=False), world)["h1"])
    assert {"h1": (), "h2": (0, 1, 2, 3)} == placed(assignment_ops(drained), drained)


def test_a_rebalance_waits_until_the_leader_has_settled() -> None:
    """D10, C6: the same would happen by a rebalance that came due during an outage."""
    seen = running(1, on={H1: (0,), H2: ()}, up=("h1", "h2"))
    pending = Pending(step=PendingStep.REBALANCE, due=10.0, workers=3)
    record = msgspec.structs.replace(seen.jobs[J].record, status=JobStatus.REBALANCING, pending=pending)
    seen = msgspec.structs.replace(seen, jobs={J: msgspec.structs.replace(seen.jobs[J], record=record)})

    assert [] == happened(seen, {}, server_now=11.0, max_wait_secs=60.0, settled=False)
    assert [Happened(J, Due(11.0))] == happened(seen, {}, server_now=11.0, max_wait_secs=60.0)


def test_two_rebalances_that_are_due_together_give_a_waiting_worker_one_place() -> None:
    """C6: two rebalances would each plan on the same records, and both give a place to a waiting
    worker."""
    pending = Pending(step=PendingStep.REBALANCE, due=10.0, workers=1)
    shrinking = [
        with_workers(msgspec.structs.replace(j, record=msgspec.structs.replace(j.record, pending=pending)), 2)
        for j in (job(name, ["b"], JobStatus.REBALANCING) for name in ("j1", "j2"))
    ]
    seen = snapshot(
        [bundle("b")],
        supervisors=[msgspec.structs.replace(supervisor(h), slots=2) for h in ("h1", "h2")],
        jobs=[*shrinking, with_workers(job("waiting", ["b"]), 1)],
    )
    on = {H1: shrinking[0], H2: shrinking[1]}
    full = {
        host: AssignmentEntry(
            AssignmentRecord(workers=tuple(WorkerAssignment(job=j.record.id, worker=k, of=2) for k in range(2))), 0
        )
        for host, j in on.items()
    }
    seen = msgspec.structs.replace(seen, assignments=full)
    events = happened(seen, {}, server_now=11.0, max_wait_secs=60.0)
    written = [decode(op.data, AssignmentRecord, path=op.path) for op in _assignment_writes(seen, events)]
    given = [w for record in written for w in record.workers if w.job == JobId("waiting")]

    assert [WorkerAssignment(job=JobId("waiting"), worker=0, of=1)] == given


def _assignment_writes(seen: ClusterSnapshot, events: list[Happened]) -> list[Set]:
    ops = [op for event in events for op in ops_of(seen, event)]
    return [op for op in ops if isinstance(op, Set) and op.path.startswith("/assignments/")]


def test_a_silent_supervisors_workers_move_if_there_is_a_place() -> None:
    """C4: a host that hangs with its session alive would keep its workers from running anywhere."""
    seen = running(3, on={H1: (0, 1), H2: (2,)}, up=("h1", "h2"))

    assert {"h1": (), "h2": (0, 1, 2)} == placed(assignment_ops(seen, silent=[H1]), seen)
    assert [] == assignment_ops(seen, silent=[H1, H2]), "when all are silent it is the leader who hears nothing"


def test_what_is_taken_away_stands_before_what_is_given() -> None:
    """C6: a batch that is cut short would leave a worker with two places."""
    seen = running(2, on={H1: (0, 1), H2: ()}, up=("h1", "h2"))
    first, second = assignment_ops(seen, [J])

    assert isinstance(first, Set)
    assert "/assignments/h1" == first.path
    assert {"h1": (0,), "h2": (1,)} == placed([first, second], seen)


def test_the_end_of_a_rebalance_is_noted_after_its_moves() -> None:
    """A4: a leader that dies in the middle would leave the workers where they were, and nothing
    pending."""
    seen = running(1, on={H1: (0,), H2: ()}, up=("h1", "h2"))
    before = msgspec.structs.replace(
        seen.jobs[J].record,
        status=JobStatus.REBALANCING,
        resume=JobStatus.ACTIVE,
        pending=Pending(step=PendingStep.REBALANCE, due=10.0, workers=3),
    )
    seen = msgspec.structs.replace(seen, jobs={J: msgspec.structs.replace(seen.jobs[J], record=before)})
    *moves, last = ops_of(seen, Happened(J, Due(10.0)))

    assert {"h1": (0, 2), "h2": (1,)} == placed(moves, seen)
    assert isinstance(last, Set)
    assert (JobStatus.ACTIVE, 3, None) == _kept(last)


def _kept(op: Set) -> tuple[JobStatus, int, Pending | None]:
    record = decode(op.data, JobRecord, path=op.path)
    return record.status, record.workers, record.pending


def test_what_ended_long_ago_is_forgotten() -> None:
    """If this fails, ended jobs and hosts that are gone fill ZooKeeper, or `job show` loses a job
    that just failed."""
    ended = {
        name: msgspec.structs.replace(job(name, ["b"], JobStatus.FAILED), mtime=m) for name, m in (("a", 5), ("b", 50))
    }
    lives = job("lives", ["b"])
    seen = snapshot([bundle("b")], jobs=[*ended.values(), lives], assigned={"empty": [], "keeps": ["b"], "here": []})
    seen = msgspec.structs.replace(seen, supervisors={SupervisorId("here"): supervisor("here")})

    assert ["/jobs/a", "/assignments/empty"] == [op.path for op in cleanup_ops(seen, 60.0, 50.0)]


def test_a_host_gets_no_more_workers_than_its_assignment_can_name() -> None:
    """A job of many thousand workers would make an assignment that nobody can write, and no other
    job would get a place."""
    slots, workers = 100_000, 20_000
    host = msgspec.structs.replace(supervisor(H1), slots=slots)
    before = snapshot([bundle("b")], supervisors=[host], jobs=[with_workers(job("j", ["b"]), workers)])
    (op,) = assignment_ops(before)

    assert isinstance(op, Create)
    assert 1_000 < len(placed([op], before)[H1])
    assert request_size([op]) < MAX_REQUEST_BYTES


@pytest.mark.parametrize("up", [(H1, H2), (H2,)])
def test_a_host_whose_assignment_is_refused_keeps_what_it_has(up: tuple[SupervisorId, ...]) -> None:
    """A worker would be in two assignments, also if its host is gone, or all others would wait for
    one assignment that nobody can write."""
    before = running(4, on={H1: (0, 1)}, up=up)
    ops = assignment_ops(before, resting={paths.assignment(H1)})

    assert {H1: (0, 1), H2: (2, 3)} == placed(ops, before)
    assert assignment_ops(before) == assignment_ops(before, resting={paths.job(JobId(H1))})


def test_a_host_whose_first_assignment_is_refused_gets_nothing() -> None:
    """A worker would have its place on a host that is never told of it."""
    before = running(1, on={}, up=(H1, H2))

    assert {H2: (0,)} == placed(assignment_ops(before, resting={paths.assignment(H1)}), before)


def test_workers_are_told_that_their_job_is_active_no_more() -> None:
    """C5: `job deactivate` would stop nothing."""
    before = changed(running(1, on={H1: (0,)}, up=(H1,)), status=JobStatus.INACTIVE)
    (op,) = assignment_ops(before)

    assert isinstance(op, Set)
    assert [False] == [worker.active for worker in decode(op.data, AssignmentRecord, path=op.path).workers]


def test_until_it_has_settled_a_leader_gives_nothing_to_hosts_without_room() -> None:
    """C5: a host that is being drained would get new workers after each failover."""
    before = running(1, on={H1: ()}, up=(H1,))
    draining = msgspec.structs.replace(before, assignments=predicted(before, drain_ops(before, H1, True)).assignments)
    full = msgspec.structs.replace(
        before, supervisors={H1: msgspec.structs.replace(before.supervisors[H1], slots=0)}, assignments={}
    )

    assert [[], []] == [assignment_ops(each, settled=False) for each in (draining, full)]


@pytest.mark.parametrize("how", ["draining", "silent", "gone"])
def test_until_it_has_settled_a_leader_gives_nobody_the_place_of_a_worker_that_has_ended(how: str) -> None:
    """D17: a host that is drained, silent or gone would get a new worker instead of the one that
    has ended."""
    before = changed(running(3, on={H1: (0, 1)}, up=() if how == "gone" else ("h1",)), exits={"0": 0})
    if how == "draining":
        before = predicted(before, drain_ops(before, H1, True))
    ops = assignment_ops(before, settled=False, silent=[H1] if how == "silent" else ())

    assert {H1: (1,)} == placed(ops, before)


@pytest.mark.parametrize("exits", [{}, {"0": 0}])
def test_a_refused_assignment_may_name_workers_that_have_ended(exits: dict[str, int]) -> None:
    """If this failed, new workers would get the places of those that have ended, in an assignment
    that nobody can write; or one ended job would stop the leader's care for all others."""
    before = changed(running(3, on={H1: (0, 1), H2: ()}, up=("h1", "h2")), exits=exits)
    ended = msgspec.structs.replace(before, jobs={})
    resting = {paths.assignment(H1)}

    assert {H1: (0, 1), H2: (2,)} == placed(assignment_ops(before, resting=resting), before)
    assert [] == assignment_ops(ended, resting=resting)


def test_a_leader_listens_for_a_sixth_of_a_session_more() -> None:
    """D10: a leader would move workers before their hosts could register, or only minutes later."""
    assert 9.0 == settling_secs(30.0)


def test_the_removal_of_a_killed_job_waits_for_no_rebalance() -> None:
    """If this fails, jobs are removed one by one, and not at all until the leader has settled."""
    due = Pending(step=PendingStep.REMOVE, due=1.0)
    killed = [job(name, ["b"], JobStatus.KILLED) for name in ("j", "other")]
    killed = [msgspec.structs.replace(e, record=msgspec.structs.replace(e.record, pending=due)) for e in killed]
    moving = job("moving", ["b"], JobStatus.REBALANCING)
    pending = Pending(step=PendingStep.REBALANCE, due=1.0, workers=1)
    moving = msgspec.structs.replace(moving, record=msgspec.structs.replace(moving.record, pending=pending))
    seen = snapshot([bundle("b")], jobs=[*killed, moving])

    found = happened(seen, {}, server_now=2.0, max_wait_secs=0.0, settled=False)
    assert [J, JobId("other")] == [what.job for what in found]
    assert found == happened(seen, {}, server_now=2.0, max_wait_secs=0.0)


def test_an_end_without_an_exit_code_counts_as_success() -> None:
    """If this fails, a worker whose end was clean leaves a record that can't be written."""
    seen = running(1, on={H1: (0,)}, up=("h1",))
    report = WorkerReport(job=J, worker=0, state=WorkerState.ENDED, pid=0, exit_code=None)
    (found,) = happened(seen, {(J, 0): report}, server_now=5.0, max_wait_secs=60.0)

    assert Happened(J, WorkerEnded(5.0, 0, 0, supervisor=H1)) == found


@pytest.mark.parametrize(("settled", "expected"), [(True, 10.0), (False, 30.0)])
def test_the_next_look_is_at_the_first_moment_that_counts(settled: bool, expected: float) -> None:
    """If this fails, a leader looks again and again for a rebalance that it may not do yet, or
    sleeps past a kill."""
    moving = msgspec.structs.replace(
        job("j", ["b"], JobStatus.REBALANCING).record,
        pending=Pending(step=PendingStep.REBALANCE, due=10.0, workers=1),
    )
    killed = msgspec.structs.replace(
        job("k", ["b"], JobStatus.KILLED).record, pending=Pending(step=PendingStep.REMOVE, due=30.0)
    )
    seen = snapshot(jobs=[JobEntry(record, 0, 0.0) for record in (moving, killed)])

    assert expected == next_due(seen, 60.0, 60.0, settled=settled)


def test_the_next_look_is_also_for_what_is_to_be_deleted() -> None:
    """If this fails, ended jobs stay until something else happens."""
    ended = msgspec.structs.replace(job("j", ["b"], JobStatus.FAILED), mtime=5.0)
    assert 65.0 == next_due(snapshot(jobs=[ended]), 60.0, 60.0)
