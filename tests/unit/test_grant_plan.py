"""Grants of barriers: which are made, moved and taken back."""

from msgspec.structs import replace
from records_of import snapshot

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import AssignmentEntry
from torrentdist.cluster.session.znode_operations import Create, Delete
from torrentdist.master.places.grant_plan import GrantChange, grant_changes, grant_path, wanted_of
from torrentdist.model.ids import JobId, SupervisorId
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
