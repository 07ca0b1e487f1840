"""Grants of barriers: which are made, moved and taken back."""

from typing import Any

from msgspec.structs import replace
from records_of import snapshot

from torrentdist.cluster import paths
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.records.snapshot import AssignmentEntry, Changes, ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Create, Delete
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.master.master_session import MasterSession
from torrentdist.master.places.grant_loop import GrantLoop
from torrentdist.master.places.grant_plan import GrantChange, grant_changes, grant_path, wanted_of
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.ids import JobId, MasterId, SupervisorId
from torrentdist.model.records import AssignmentRecord, WorkerAssignment

HOST = SupervisorId("h1")
ETL = JobId("etl")


def test_a_host_with_a_place_wants_a_grant_for_each_of_its_workers() -> None:
    """If this fails, a worker never gets its barrier, or a host without a place gets one."""
    workers = tuple(WorkerAssignment(job=ETL, worker=n) for n in (0, 3))
    assigned = {HOST: AssignmentEntry(AssignmentRecord(workers=workers), 0)}
    seen = replace(snapshot(), assignments=assigned, places={HOST: "user-1", SupervisorId("h2"): "user-2"})

    assert {paths.worker_resource(ETL, n): "user-1" for n in (0, 3)} == wanted_of(seen, HOST)
    assert {} == wanted_of(seen, SupervisorId("h2"))
    assert {} == wanted_of(replace(seen, places={}), HOST)


def test_only_grants_that_differ_change() -> None:
    """If this fails, grants are written anew in each round, or stay with the wrong host."""
    wanted = {"new": "a", "same": "a", "moved": "b", "elsewhere": "z"}
    granted = {"same": "a", "moved": "a", "over": "a"}

    assert [
        GrantChange("moved", "a", "b"),
        GrantChange("new", None, "a"),
        GrantChange("over", "a", None),
    ] == list(grant_changes(["same", "over", "new", "moved"], wanted, granted))


def test_a_grant_moves_in_one_transaction() -> None:
    """If this fails, a worker has two grants for a moment, or none for ever."""
    path = grant_path("r")

    assert paths.JOB_GROUP.barrier("r") == path
    assert [Create(path, b"a")] == GrantChange("r", None, "a").ops()
    assert [Delete(path), Create(path, b"b")] == GrantChange("r", "a", "b").ops()
    assert [Delete(path)] == GrantChange("r", "a", None).ops()


def assigned_to(*hosts: str) -> dict[SupervisorId, AssignmentEntry]:
    """Returns the assignments that h1 and h2 have while these hosts are told to run the worker."""
    worker = (WorkerAssignment(job=ETL, worker=0),)
    told = {host: worker if host in hosts else () for host in ("h1", "h2")}
    return {SupervisorId(host): AssignmentEntry(AssignmentRecord(workers=told[host]), 0) for host in told}


def seen_after(before: ClusterSnapshot, host: str, *hosts: str) -> ClusterSnapshot:
    """Returns the next snapshot, in which the assignment of `host` was read again."""
    step = Changes(assignments=frozenset({SupervisorId(host)}))
    version, recent = before.version + 1, (*before.recent, step)
    return replace(before, assignments=assigned_to(*hosts), version=version, recent=recent)


def test_a_moved_worker_has_its_grant_whichever_assignment_is_seen_first() -> None:
    """If this fails, a worker that moves gets no barrier on its new host until the leader
    changes."""
    zookeeper = ZooKeeper(ZooKeeperConfig())
    unasked: Any = None
    loop = GrantLoop(MasterSession(MasterId("m1"), zookeeper, Mirror(zookeeper)), unasked)
    places = {SupervisorId("h1"): "user-1", SupervisorId("h2"): "user-2"}
    old = replace(snapshot(), assignments=assigned_to("h1"), places=places)
    both = seen_after(old, "h2", "h1", "h2")
    moved = seen_after(both, "h1", "h2")
    ended = seen_after(moved, "h2")
    wanted = []
    for each in (old, both, moved, ended):
        loop._follow(each)
        wanted.append(dict(loop._wanted))
    late = GrantLoop(MasterSession(MasterId("m1"), zookeeper, Mirror(zookeeper)), unasked)
    for each in (both, moved):
        late._follow(each)

    resource = paths.worker_resource(ETL, 0)
    assert [{resource: "user-1"}, {resource: "user-2"}, {resource: "user-2"}, {}] == wanted
    assert {resource: "user-2"} == late._wanted
