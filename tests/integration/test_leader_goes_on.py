"""One record that makes a step of a leader's loop raise holds up no other, in every loop of the
leader, with a real ZooKeeper."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import msgspec
import pytest
from masters_in_process import Enter, InProcess
from records_of import bundle, digest_of, job, master, snapshot, store_of, supervisor
from zookeeper_fixtures import eventually

from torrentdist.cluster import paths
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.records.snapshot import ClusterSnapshot, TokenEntry
from torrentdist.cluster.session.acl_table import READ, Acl
from torrentdist.cluster.session.znode_operations import Check, NodeExists, Op, TransactionFailed
from torrentdist.master.access.kept_revocations import KeptRevocations
from torrentdist.master.jobs import job_duties
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.jobs.job_loop import JobLoop
from torrentdist.master.jobs.story_keeper import Stories
from torrentdist.master.leading import leader_rounds
from torrentdist.master.master_session import MasterSession
from torrentdist.master.places.grant_loop import GrantLoop
from torrentdist.master.places.grant_plan import grant_path
from torrentdist.master.places.place_operations import PARENTS
from torrentdist.master.places.place_removal import PlaceRemoval
from torrentdist.master.policies.policy_loop import PolicyLoop, PolicyParts
from torrentdist.master.policies.retention_operations import RetentionOperations
from torrentdist.master.presence.presence_loop import PresenceLoop
from torrentdist.master.presence.presence_plan import Heard
from torrentdist.master.reads.zookeeper_reachability import ZooKeeperReachability
from torrentdist.model.access.host_record import HostRecord
from torrentdist.model.access.token_messages import TokenRecord
from torrentdist.model.access.zookeeper_identity import host_user
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId, MasterId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord
from torrentdist.model.policies.retention_record import RetentionRecord
from torrentdist.model.records import (
    AssignmentRecord,
    BundleRecord,
    BundleState,
    JobRecord,
    JobStatus,
    ReplicaRecord,
    WorkerAssignment,
    encode,
)

pytestmark = [pytest.mark.anyio, pytest.mark.case("I4")]

BAD, GOOD, NEWER = "bad", "good", "newer"
ALWAYS = 1_000_000
"""How often a turn of the bad record fails."""


def bundle_record(name: str, state: BundleState = BundleState.AVAILABLE, created_at: float = 0.0) -> BundleRecord:
    return BundleRecord(
        id=BundleId(name), digest=digest_of(name), size=1, files=1, state=state, min_replicas=1, created_at=created_at
    )


async def leading(enter: Enter) -> InProcess:
    leader = await enter("m1")
    await leader.leads()
    await leader.zk.set(paths.JOBS, b"")  # now it knows ZooKeeper's time
    return leader


async def unfinished_uploads(leader: InProcess) -> None:
    await leader.zk.create(f"{paths.MASTERS}/m9", encode(master("m9")))
    for name in (BAD, GOOD):
        holder = MasterId("m9")
        replica = ReplicaRecord(master=holder, store=store_of(holder), digest=digest_of(name))
        await leader.zk.create(paths.bundle(BundleId(name)), encode(bundle_record(name, BundleState.UPLOADING)))
        await leader.zk.create(paths.replica(BundleId(name), holder), encode(replica))


async def old_schemas(leader: InProcess) -> None:
    for name in (BAD, GOOD):
        data = encode(bundle_record(name)).replace(b'"schema":2', b'"schema":1')
        await leader.zk.create(paths.bundle(BundleId(name)), data)


async def new_hosts(leader: InProcess) -> None:
    for name in (BAD, GOOD):
        await leader.zk.create(paths.supervisor(SupervisorId(name)), encode(supervisor(name)))


async def distributions(leader: InProcess) -> None:
    for name in (BAD, GOOD):
        await leader.zk.create(paths.bundle(BundleId(name)), encode(bundle_record(name)))
        await leader.zk.create(paths.distribution(BundleId(name)), encode(DistributionRecord(bundle=BundleId(name))))


async def doomed_bundles(leader: InProcess) -> None:
    for number, name in enumerate((BAD, GOOD, NEWER)):
        await leader.zk.create(paths.bundle(BundleId(name)), encode(bundle_record(name, created_at=float(number))))
    await leader.zk.create(paths.retention("*"), encode(RetentionRecord(pattern="*", keep=1)))


async def submitted_jobs(leader: InProcess) -> None:
    for name in (BAD, GOOD):
        job = JobRecord(id=JobId(name), name=name, status=JobStatus.SUBMITTED, bundle=BundleId("none"))
        await leader.zk.create(paths.job(JobId(name)), encode(job))


async def workers_without_grants(leader: InProcess) -> None:
    for parent in PARENTS:
        await leader.zk.ensure(parent)
    for name in (BAD, GOOD):
        worker = WorkerAssignment(job=JobId(name), worker=0)
        await leader.zk.create(paths.place(name), host_user(name, 0.0).encode())
        await leader.zk.create(paths.assignment(SupervisorId(name)), encode(AssignmentRecord(workers=(worker,))))


async def places_of_revoked_hosts(leader: InProcess) -> None:
    for parent in PARENTS:
        await leader.zk.ensure(parent)
    for name in (BAD, GOOD):
        await leader.zk.create(paths.place(name), host_user(name, 0.0).encode())
        await leader.zk.create(paths.host(name), encode(HostRecord(id=name, is_revoked=True)))


def token(name: str, revoked_at: float | None = None) -> TokenRecord:
    return TokenRecord(name=name, role="reader", hash="h" * 64, created_at=0.0, revoked_at=revoked_at)


async def tokens_that_were_revoked(leader: InProcess) -> None:
    for name in (BAD, GOOD):
        await leader.zk.create(paths.token(name), encode(token(name)))


def session_of(leader: InProcess) -> MasterSession:
    return MasterSession(MasterId("m1"), leader.zk, leader.mirror)


def rounds(_: InProcess) -> Awaitable[None]:
    return asyncio.Event().wait()  # type: ignore[return-value]  # the leader does its rounds by itself


def presence(leader: InProcess) -> Awaitable[None]:
    return PresenceLoop(session_of(leader), leader.leadership, lambda *_: Heard(), 600.0).run()


def policies(leader: InProcess) -> Awaitable[None]:
    retention = RetentionOperations(leader.changes, leader.zk.server_now)
    parts = PolicyParts(leader.changes, retention, lambda _: {}, lambda: 0)
    return PolicyLoop(session_of(leader), leader.leadership, parts, 600.0).run()


def jobs(leader: InProcess) -> Awaitable[None]:
    session, leads = session_of(leader), leader.leadership
    reachability = ZooKeeperReachability(leader.zk)
    heartbeats = Heartbeats(session, leads, reachability, 0.0)
    return JobLoop(session, leads, reachability, heartbeats, Stories(session, leads.is_leader), Config()).run()


def grants(leader: InProcess) -> Awaitable[None]:
    return GrantLoop(session_of(leader), leader.leadership).run()


def places(leader: InProcess) -> Awaitable[None]:
    return PlaceRemoval(session_of(leader), leader.leadership).run()


def revocations(leader: InProcess) -> Awaitable[None]:
    cluster = leader.mirror.snapshot.cluster
    known = {name: TokenEntry(token(name, revoked_at=1.0), 0) for name in (BAD, GOOD)}
    return KeptRevocations(session_of(leader), leader.leadership, ClusterSnapshot(cluster=cluster, tokens=known)).run()


@dataclass(frozen=True)
class Step:
    """What a loop owes two records. `path`: what it writes for one of them. `done`: whether it has
    written that."""

    prepare: Callable[[InProcess], Awaitable[None]]
    loop: Callable[[InProcess], Awaitable[None]]
    path: Callable[[str], str]
    done: Callable[[ClusterSnapshot, str], bool]


def state_of(snapshot: ClusterSnapshot, name: str) -> BundleState:
    return snapshot.bundles[BundleId(name)].record.state


STEPS = {
    "uploads": Step(
        unfinished_uploads, rounds, lambda n: paths.bundle(BundleId(n)),
        lambda s, n: state_of(s, n) is BundleState.AVAILABLE,
    ),
    "schema": Step(
        old_schemas, rounds, lambda n: paths.bundle(BundleId(n)),
        lambda s, n: s.bundles[BundleId(n)].record.schema == s.schema,
    ),
    "presence": Step(
        new_hosts, presence, paths.known_supervisor, lambda s, n: SupervisorId(n) in s.known_supervisors
    ),
    "distributions": Step(
        distributions, policies, lambda n: paths.distribution(BundleId(n)),
        lambda s, n: s.distributions[BundleId(n)].record.is_over,
    ),
    "retention": Step(
        doomed_bundles, policies, lambda n: paths.bundle(BundleId(n)),
        lambda s, n: state_of(s, n) is BundleState.REMOVED,
    ),
    "jobs": Step(
        submitted_jobs, jobs, lambda n: paths.job(JobId(n)),
        lambda s, n: s.jobs[JobId(n)].record.status is not JobStatus.SUBMITTED,
    ),
    "grants": Step(
        workers_without_grants, grants, lambda n: grant_path(paths.worker_resource(JobId(n), 0)), lambda s, n: False
    ),
    "places": Step(places_of_revoked_hosts, places, paths.place, lambda s, n: n not in s.places),
    "revocations": Step(
        tokens_that_were_revoked, revocations, paths.token, lambda s, n: s.tokens[n].record.revoked_at is not None
    ),
}  # fmt: skip

ERRORS: dict[str, Callable[[Sequence[Op], int], Exception]] = {
    "refused": lambda ops, index: TransactionFailed(ops, index, NodeExists(ops[index].path)),
    "a bug": lambda ops, index: KeyError("a bug"),
}


class FailingWrites:
    """A connection on which the leader's writes of one znode fail so many times."""

    def __init__(self, leader: InProcess, path: str, error: Callable[[Sequence[Op], int], Exception]) -> None:
        self.path, self.error, self.left = path, error, 0
        self.passed: set[str] = set()
        self._commit = leader.zk.commit

    async def commit(self, ops: Sequence[Op]) -> Any:
        is_fenced = isinstance(ops[0], Check) and ops[0].path == paths.EPOCH
        at = [index for index, op in enumerate(ops) if op.path == self.path]
        if at and is_fenced and self.left > 0:
            self.left -= 1
            raise self.error(ops, at[0])
        results = await self._commit(ops)
        self.passed.update(op.path for op in ops if is_fenced)
        return results


@contextlib.asynccontextmanager
async def at_work(loop: Awaitable[None]) -> Any:
    running = asyncio.ensure_future(loop)
    try:
        yield running
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", STEPS)
async def test_a_write_that_fails_holds_up_no_other_record(
    name: str, error: str, enter: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, one bundle, host, job or token stops what the leader owes to all others, or
    ends one leader after the other."""
    step, leader = STEPS[name], await leading(enter)
    writes = FailingWrites(leader, step.path(BAD), ERRORS[error])
    writes.left = ALWAYS
    monkeypatch.setattr(leader.zk, "commit", writes.commit)

    def done(which: str) -> bool:
        return step.path(which) in writes.passed

    async with at_work(step.loop(leader)) as loop:
        await step.prepare(leader)
        await eventually(lambda: done(GOOD) or loop.done())
        assert not loop.done()
        assert not done(BAD)
        writes.left = 0
        await eventually(lambda: done(BAD) or loop.done())
        if name != "grants":  # they are no records
            await eventually(lambda: all(step.done(leader.mirror.snapshot, each) for each in (BAD, GOOD)))
        assert [False, False] == [loop.done(), leader.task.done()]


async def test_an_assignment_that_zookeeper_refuses_holds_up_no_other_host(enter: Enter) -> None:
    """If this fails, a foreign ACL on the assignment of one host keeps every worker of every job
    from starting."""
    leader = await leading(enter)
    for name in (BAD, GOOD):
        host = msgspec.structs.replace(supervisor(name), slots=1)
        await leader.zk.create(paths.assignment(host.id), encode(AssignmentRecord()))
        await leader.zk.create(paths.supervisor(host.id), encode(host))
    await leader.zk.secure(paths.assignment(SupervisorId(BAD)), [Acl("world", "anyone", READ)])
    async with at_work(jobs(leader)) as loop:
        job = JobRecord(id=JobId("j"), name="j", status=JobStatus.ACTIVE, bundle=BundleId("none"), workers=2)
        await leader.zk.create(paths.job(job.id), encode(job))
        await eventually(lambda: has_work(leader, GOOD) or loop.done())
        assert not loop.done()


def has_work(leader: InProcess, host: str) -> bool:
    entry = leader.mirror.snapshot.assignments.get(SupervisorId(host))
    return entry is not None and bool(entry.record.workers)


def failing_for(bad: Callable[..., bool], real: Callable[..., Any]) -> Callable[..., Any]:
    def decide(*given: Any, **named: Any) -> Any:
        if bad(*given, **named):
            raise KeyError("a bug")
        return real(*given, **named)

    return decide


def concerns_bad_job(snapshot: ClusterSnapshot, entry: Any, *_: Any) -> bool:
    return bool(entry.record.id == BAD)


def concerns_bad_bundle(snapshot: ClusterSnapshot, *, among: Collection[str], **_: Any) -> bool:
    return BAD in among


DECISIONS: dict[str, tuple[ModuleType, str, Callable[..., bool]]] = {
    "uploads": (leader_rounds, "duties", concerns_bad_bundle),
    "jobs": (job_duties, "_events", concerns_bad_job),
}


@pytest.mark.parametrize("name", DECISIONS)
async def test_a_decision_that_fails_holds_up_no_other_record(
    name: str, enter: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, a mistake of ours about one job or bundle ends one leader after the other."""
    step, leader = STEPS[name], await leading(enter)
    module, function, bad = DECISIONS[name]
    with monkeypatch.context() as patched:
        patched.setattr(module, function, failing_for(bad, getattr(module, function)))
        async with at_work(step.loop(leader)) as loop:
            await step.prepare(leader)
            await eventually(lambda: not_yet(leader, step) or loop.done())
            assert [False, False] == [loop.done(), leader.task.done()]
            patched.undo()
            await eventually(lambda: step.done(leader.mirror.snapshot, BAD))


def not_yet(leader: InProcess, step: Step) -> bool:
    """Whether what is due was done for the good record alone."""
    with contextlib.suppress(KeyError):
        return step.done(leader.mirror.snapshot, GOOD) and not step.done(leader.mirror.snapshot, BAD)
    return False


async def test_a_damaged_record_of_a_host_starves_no_other(enter: Enter) -> None:
    """If this fails, one damaged record keeps the cluster from remembering any other host, and from
    noticing that one dies."""
    leader = await leading(enter)
    await leader.zk.create(paths.known_supervisor(BAD), b"{")
    await leader.mirror.wait_for(lambda s: paths.known_supervisor(BAD) in s.damaged, 10.0)
    async with at_work(presence(leader)):
        await new_hosts(leader)
        await leader.mirror.wait_for(lambda s: SupervisorId(GOOD) in s.known_supervisors, 10.0)
        await leader.zk.set(paths.known_supervisor(BAD), b"{}")
        await leader.zk.delete(paths.known_supervisor(BAD))
        await leader.mirror.wait_for(lambda s: SupervisorId(BAD) in s.known_supervisors and not s.damaged, 30.0)


async def test_a_distribution_of_a_damaged_bundle_stays(enter: Enter) -> None:
    """If this fails, a leader takes a damaged record for a removed one, and tells all hosts to drop
    a bundle that is there."""
    leader = await leading(enter)
    await distributions(leader)
    told = AssignmentRecord(bundles=(BundleId(BAD),))
    await leader.zk.create(paths.assignment(SupervisorId("h1")), encode(told))
    await leader.zk.set(paths.bundle(BundleId(BAD)), b"{")
    await leader.mirror.wait_for(lambda s: paths.bundle(BundleId(BAD)) in s.damaged, 10.0)
    async with at_work(policies(leader)):
        await leader.mirror.wait_for(lambda s: s.distributions[BundleId(GOOD)].record.is_over, 10.0)
        snapshot = await leader.mirror.sync(5.0)

    assert BundleId(BAD) in snapshot.distributions
    assert (BundleId(BAD),) == snapshot.assignments[SupervisorId("h1")].record.bundles


class Hindered:
    """A leader's office whose fence fails in the middle of the first round."""

    def __init__(self, leader: InProcess) -> None:
        self._leader, self._asked, self.gave_way = leader, 0, 0

    def fence(self) -> Fence:
        self._asked += 1
        if self._asked == 2:
            raise TorrentdistError("zookeeper_unavailable", detail="for once")
        return self._leader.leadership.fence()

    def led_for(self) -> float:
        return 0.0

    def give_way(self, reason: str) -> None:
        self.gave_way += 1


async def test_what_is_new_in_a_round_that_fails_is_seen_in_the_next(enter: Enter) -> None:
    """A9: if this fails, a leader that lacks a bundle leads on beside a master that has it."""
    leader = await leading(enter)
    rounds, office = leader.new_rounds(), Hindered(leader)
    seen = snapshot([bundle("code", holders=["m2"])], jobs=[job("j", ["code"])])
    with pytest.raises(TorrentdistError):
        await rounds._step(office, seen)
    await rounds._step(office, seen)
    await rounds._step(office, seen)

    assert 1 == office.gave_way
