"""Values that are derived change by change equal those of a walk over all records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from property_size import examples
from records_of import bundle, digest_of, job, master, supervisor

from torrentdist.cluster import paths
from torrentdist.cluster.records.record_index import Follower, PerBundle, RecordIndex
from torrentdist.cluster.records.snapshot import Changes, ClusterSnapshot, ReadTree, updated
from torrentdist.cluster.session.znode_operations import Stat
from torrentdist.master.presence.open_bundles import OpenBundles
from torrentdist.master.replication.replication_plan import Local, is_settled, plan
from torrentdist.master.swarm.swarm_records import SwarmRecords
from torrentdist.model.ids import BundleId, Digest, JobId, MasterId, PeerId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState
from torrentdist.model.records import (
    AssignmentRecord,
    BundleState,
    ClusterRecord,
    JobStatus,
    Record,
    WorkerAssignment,
    encode,
)
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmEntry
from torrentdist.swarm.directory.directory import SwarmDirectory

BUNDLES = [BundleId(f"b{n}") for n in range(5)]
HOSTS = [SupervisorId(f"h{n}") for n in range(3)]
MASTERS = [MasterId(f"m{n}") for n in range(3)]
JOBS = [JobId(f"j{n}") for n in range(3)]
CONTENTS = ["x", "y", "z"]
ME = MASTERS[0]


def holders_of(snapshot: ClusterSnapshot, bundle: BundleId) -> tuple[MasterId, ...] | None:
    return snapshot.holders(bundle) or None


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tree = ReadTree()
        self.version = 0
        self.snapshot = ClusterSnapshot()
        self.index = RecordIndex()
        self.held = PerBundle(holders_of)
        self.directory = SwarmDirectory()
        self.open = OpenBundles(self.directory)
        self.swarm = SwarmRecords(SwarmDirectory(), lambda: self.snapshot)
        self._write(paths.CLUSTER, ClusterRecord(id="c", announce_key="k"))

    def _write(self, path: str, record: Record | None) -> None:
        self.version += 1
        if record is None:
            self.tree.drop(path)
        else:
            stat = Stat(
                version=self.version, mtime=float(self.version), created_zxid=1, modified_zxid=1, ephemeral_owner=0
            )
            self.tree.nodes[path] = (encode(record), stat)
        self.snapshot = updated(self.snapshot, self.tree, [path], lambda path, error: pytest.fail(f"{path}: {error}"))

    @rule(id_=st.sampled_from(BUNDLES), content=st.sampled_from(CONTENTS), state=st.sampled_from(BundleState))
    def write_bundle(self, id_: BundleId, content: str, state: BundleState) -> None:
        self._write(paths.bundle(id_), bundle(id_, content=content, state=state).record)

    @rule(id_=st.sampled_from(BUNDLES))
    def forget_bundle(self, id_: BundleId) -> None:
        self._write(paths.bundle(id_), None)

    @rule(id_=st.sampled_from(BUNDLES), content=st.sampled_from(CONTENTS), holders=st.sets(st.sampled_from(MASTERS)))
    def write_replicas(self, id_: BundleId, content: str, holders: set[MasterId]) -> None:
        for holder, replica in bundle(id_, content=content, holders=holders).replicas.items():
            path = paths.bundle(id_)
            self.tree.children[path] = self.tree.children.get(path, frozenset()) | {holder}
            self._write(paths.replica(id_, holder), replica)

    @rule(id_=st.sampled_from(MASTERS), there=st.booleans())
    def register(self, id_: MasterId, there: bool) -> None:
        self._write(paths.master(id_), master(id_) if there else None)

    @rule(id_=st.sampled_from(HOSTS), there=st.booleans())
    def come(self, id_: SupervisorId, there: bool) -> None:
        self._write(paths.supervisor(id_), supervisor(id_) if there else None)

    @rule(id_=st.sampled_from(HOSTS), keeps=st.sets(st.sampled_from(BUNDLES)), runs=st.sets(st.sampled_from(JOBS)))
    def assign(self, id_: SupervisorId, keeps: set[BundleId], runs: set[JobId]) -> None:
        workers = tuple(WorkerAssignment(job=job, worker=0) for job in sorted(runs))
        self._write(paths.assignment(id_), AssignmentRecord(bundles=tuple(sorted(keeps)), workers=workers))

    @rule(id_=st.sampled_from(JOBS), needs=st.lists(st.sampled_from(BUNDLES), min_size=1), over=st.booleans())
    def write_job(self, id_: JobId, needs: list[BundleId], over: bool) -> None:
        self._write(paths.job(id_), job(id_, list(needs), JobStatus.FAILED if over else JobStatus.ACTIVE).record)

    @rule(id_=st.sampled_from(BUNDLES), hosts=st.sets(st.sampled_from(HOSTS)), over=st.booleans())
    def order(self, id_: BundleId, hosts: set[SupervisorId], over: bool) -> None:
        state = DistributionState.COMPLETE if over else DistributionState.RUNNING
        record = DistributionRecord(bundle=id_, hosts=tuple(sorted(hosts)), state=state)
        self._write(paths.distribution(id_), record if hosts else None)

    @rule(host=st.sampled_from(HOSTS), has=st.sets(st.sampled_from(CONTENTS)), problem=st.sampled_from(["", "no room"]))
    def announce(self, host: SupervisorId, has: set[str], problem: str) -> None:
        entries = [
            SwarmEntry(digest=digest_of(name), complete=name in has, problem="" if name in has else problem)
            for name in CONTENTS
        ]
        said = SwarmAnnounce(peer=PeerId(host), role=PeerRole.SUPERVISOR, port=7000, swarms=entries, left=not has)
        self.directory.announce(said, source_host=f"10.0.0.{host[1:]}", now=0.0)

    @rule()
    def look(self) -> None:
        """Looks only sometimes: a reader that skips versions learns of all changes in between."""
        seen = self.snapshot
        self.index.follow(seen)

        held = {id_: holders for id_ in seen.bundles if (holders := seen.holders(id_))}
        assert held == self.held.of(seen)
        assert dict(Counter(held.values())) == dict(self.held.tally)
        assert OpenBundles(self.directory).of(seen) == self.open.of(seen)
        for digest in map(digest_of, CONTENTS):
            same = sorted(id_ for id_, entry in seen.bundles.items() if entry.record.digest == digest)
            assert same == self.index.bundles_of(digest)
            assert ({digest} if same else set()) == self.index.digests_like(digest[:40])
        for id_ in BUNDLES:
            hosts = [h for h, e in seen.assignments.items() if id_ in e.record.bundles and h in seen.supervisors]
            assert sorted(hosts, key=lambda h: seen.assignments[h].mtime) == self.index.hosts_of(id_)
            live = [j for j, e in seen.jobs.items() if e.record.live and id_ in e.record.needs]
            assert sorted(live) == self.index.live_jobs_of(id_)
        for job_id in JOBS:
            running = [h for h, e in seen.assignments.items() if job_id in {w.job for w in e.record.workers}]
            assert sorted(running) == self.index.running(job_id)

    @rule(published=st.sets(st.sampled_from(CONTENTS)))
    def plan_for_a_part(self, published: set[str]) -> None:
        """A master that looks only at unsettled bundles does the same as one that looks at all."""
        here = frozenset(map(digest_of, published))
        local = Local(ME, master(ME).store, here, arriving=frozenset(), fetching=frozenset())
        open_ = [id_ for id_ in self.snapshot.bundles if not is_settled(self.snapshot, local, id_)]

        key = repr
        assert sorted(plan(self.snapshot, local, 0.0), key=key) == sorted(
            plan(self.snapshot, local, 0.0, open_), key=key
        )

    @invariant()
    def expected_hosts_are_those_of_a_walk(self) -> None:
        """Otherwise one that left would keep its place, or one told to fetch would have none."""
        self.swarm.follow()
        walked = RecordIndex.of(self.snapshot)
        for digest in map(digest_of, CONTENTS):
            bundles = walked.bundles_of(digest)
            meant = [PeerId(host) for bundle in bundles for host in walked.hosts_of(bundle)]
            assert set(meant) == set(self.swarm.facts_of(digest).expected)

    @invariant()
    def nothing_changed_since_now(self) -> None:
        assert Changes() == self.snapshot.changes_since(self.snapshot.version)


Machine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30)
TestRecordIndex = Machine.TestCase


def test_a_host_that_left_while_an_id_had_other_content_is_not_expected() -> None:
    """If this fails, the old content of an id, uploaded once more, waits for a host that is
    gone."""
    machine, id_, host = Machine(), BUNDLES[0], HOSTS[0]
    machine.come(host, True)
    machine.write_bundle(id_, "y", BundleState.UPLOADING)
    machine.assign(host, {id_}, set())
    machine.expected_hosts_are_those_of_a_walk()
    machine.write_bundle(id_, "x", BundleState.UPLOADING)
    machine.expected_hosts_are_those_of_a_walk()
    machine.come(host, False)
    machine.expected_hosts_are_those_of_a_walk()
    machine.write_bundle(id_, "y", BundleState.UPLOADING)

    machine.expected_hosts_are_those_of_a_walk()


def test_who_is_far_behind_looks_at_everything() -> None:
    """G11: changes that are no longer remembered would count as none."""
    machine = Machine()
    first = machine.snapshot.version
    for number in range(300):
        machine.register(ME, number % 2 == 0)

    assert machine.snapshot.changes_since(first) is None
    assert machine.snapshot.changes_since(machine.snapshot.version + 1) is None
    assert Changes(masters=True) == machine.snapshot.changes_since(machine.snapshot.version - 200)


def test_a_snapshot_from_a_file_is_compared_with_nothing() -> None:
    """G11: a snapshot from a file has a revision of its own, and the changes between it and a
    mirror's are not known."""
    machine = Machine()
    from_file = msgspec.structs.replace(machine.snapshot, version=-2, recent=())

    assert machine.snapshot.changes_since(from_file.version) is None
    assert from_file.changes_since(machine.snapshot.version) is None
    assert Digest("") not in machine.index.digests_like("")


def test_only_what_changed_is_looked_at_again() -> None:
    """G11: each change of one bundle would cost a walk over a million."""
    machine, looked = Machine(), list[BundleId]()

    def derive(snapshot: ClusterSnapshot, bundle: BundleId) -> str | None:
        looked.append(bundle)
        return "held" if snapshot.holders(bundle) else None

    values, first, second = PerBundle(derive), *BUNDLES[:2]
    for id_ in (first, second):
        machine.write_bundle(id_, "x", BundleState.AVAILABLE)
        machine.write_replicas(id_, "x", {ME})
    seen = [(dict(values.of(machine.snapshot)), dict(values.tally), sorted(looked))]
    changes: list[Callable[[], None]] = [
        partial(machine.write_bundle, first, "x", BundleState.AVAILABLE),
        lambda: None,
        partial(machine.register, ME, True),
        partial(machine.forget_bundle, first),
    ]
    for change in changes:
        looked.clear()
        change()
        seen.append((dict(values.of(machine.snapshot)), dict(values.tally), sorted(looked)))

    assert ({}, [first, second]) == (seen[0][0], seen[0][2])
    assert [[first], []] == [looks for _, _, looks in seen[1:3]]
    assert ({first: "held", second: "held"}, {"held": 2}, [first, second]) == seen[3]
    assert ({second: "held"}, {"held": 1}) == seen[4][:2]
    machine.forget_bundle(second)
    assert ({}, {}) == (values.of(machine.snapshot), dict(values.tally)), "a value that no bundle has is not kept"


def test_a_new_follower_knows_of_no_change() -> None:
    """G11: what happened before would count as known."""
    machine = Machine()
    for there in (True, False, True):
        machine.register(ME, there)

    assert Follower().news(machine.snapshot) is None
    assert [] == RecordIndex().hosts_of(BUNDLES[0])


def test_what_a_host_is_told_is_found_from_both_sides() -> None:
    """A host would drop what it should keep, or count for what it dropped."""
    machine, host, job_id = Machine(), HOSTS[0], JOBS[0]
    first, second = BUNDLES[:2]
    index = machine.index

    assert RecordIndex.of(machine.snapshot).digests_like("x") == index.digests_like("x") == set()
    machine.assign(host, {first, second}, {job_id})
    machine.write_job(job_id, [first], False)
    index.follow(machine.snapshot)
    assert (frozenset({first, second}), frozenset({host}), [host], 1) == (
        index.kept(host), index.told(first), index.told_to_keep(second), index.count_told(first)
    )  # fmt: skip
    assert ([host], [job_id], []) == (index.running(job_id), index.live_jobs_of(first), index.live_jobs_of(second))
    machine.assign(host, {second}, set())
    machine._write(paths.job(job_id), None)

    assert Changes(assignments=frozenset({host}), jobs=frozenset({job_id})) == index.follow(machine.snapshot)
    assert Changes() == index.follow(machine.snapshot)
    assert (frozenset[SupervisorId](), 0, list[SupervisorId](), list[JobId]()) == (
        index.told(first), index.count_told(first), index.running(job_id), index.live_jobs_of(first)
    )  # fmt: skip
    assert set() == index.kept(HOSTS[1])
