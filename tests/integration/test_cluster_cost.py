"""The cost of a change at a master does not grow with the number of records: a real cluster,
measured by its processor time."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, NewCluster, until
from kazoo.client import KazooClient

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.store import objects
from torrentdist.bundle.store.store import Store
from torrentdist.model.ids import BundleId, Digest, JobId, MasterId, StoreId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.records import BundleRecord, BundleState, JobRecord, JobStatus, ReplicaRecord, encode
from torrentdist.testing.sample_trees import write_tree

HELD = 1000
TOMBSTONES = 3000
JOBS = 500
CHANGES = 4
"""Uploads, each with its removal."""


def processor_secs(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def at_rest(cluster: Cluster, pid: int) -> Callable[[], bool]:
    """Returns a check that is true once looking at the cluster costs next to nothing, so that
    earlier work is done."""
    last = [processor_secs(pid)]

    def look() -> bool:
        before, last[0] = last[0], processor_secs(pid)
        (master,) = cluster.masters()
        return cluster.get(master, "/v1/cluster") is not None and processor_secs(pid) - before < 0.1

    return look


def cost_of_changes(cluster: Cluster, pid: int, path: Path, prefix: str) -> float:
    before = processor_secs(pid)
    for number in range(CHANGES):
        write_tree(path / f"{prefix}{number}", {"file": f"{prefix}{number}".encode()})
        cluster.run("upload", str(path / f"{prefix}{number}"), "--id", f"{prefix}{number}").ok()
        cluster.run("bundle", "rm", f"{prefix}{number}").ok()
    return processor_secs(pid) - before


def publish_bundles(store_dir: Path, work: Path, count: int) -> Iterator[tuple[BundleRecord, StoreId]]:
    """Puts bundles into the store of a master that does not run. The caller writes their
    records."""
    store = Store.open(store_dir)
    try:
        for number in range(count):
            write_tree(work / f"held-{number}", {"file": f"held {number}".encode()})
        for number in range(count):
            content = work / f"held-{number}"
            meta = make_metafile(content)
            shutil.copytree(content, store.begin(meta) / "content", dirs_exist_ok=True)
            store.publish(meta.digest)
            id_ = BundleId(f"held-{number}")
            store.bind(id_, meta.digest)
            yield _record(id_, meta.digest, BundleState.AVAILABLE), store.id
    finally:
        store.close()


def _record(id_: BundleId, digest: Digest, state: BundleState) -> BundleRecord:
    return BundleRecord(id=id_, digest=digest, size=7, files=1, state=state, min_replicas=1, created_at=0.0)


def fill(cluster: Cluster, master: str, work: Path, *, held: int, removed: int, jobs: int) -> None:
    """Gives a master that does not run many bundles, tombstones and jobs."""
    client = KazooClient(hosts=cluster.dev.state.zookeeper + "/torrentdist")
    client.start(10)
    try:
        for record, store in publish_bundles(cluster.store(master), work, held):
            replica = ReplicaRecord(master=MasterId(master), store=store, digest=record.digest)
            client.create_async(f"/code-distributor/{record.id}", encode(record))
            client.create_async(f"/code-distributor/{record.id}/{master}", encode(replica))
        for number in range(removed):
            record = _record(BundleId(f"gone-{number}"), Digest(f"{number:064x}"), BundleState.REMOVED)
            client.create_async(f"/code-distributor/{record.id}", encode(record))
        for number in range(jobs):
            spec = JobSpec(name=f"job-{number}", command=("true",))
            job = JobRecord(
                id=JobId(f"job-{number}"),
                name=spec.name,
                status=JobStatus.INACTIVE,
                bundle=BundleId("kept"),
                spec=spec,
                workers=1,
            )
            client.create_async(f"/jobs/{job.id}", encode(job))
        client.sync("/")
    finally:
        client.stop()
        client.close()


@pytest.mark.alone
@pytest.mark.case("G11")
def test_an_upload_and_its_removal_cost_as_much_with_many_records(
    new_cluster: NewCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G11: if this failed, every change would make every master walk over all bundles and jobs."""
    cluster = new_cluster(masters=1, supervisors=0)
    (master,) = cluster.masters()
    pid = cluster.dev.member(master).pid
    write_tree(tmp_path / "kept", {"file": b"kept"})
    cluster.run("upload", str(tmp_path / "kept"), "--id", "kept").ok()
    cost_of_changes(cluster, pid, tmp_path, "warm")
    few = cost_of_changes(cluster, pid, tmp_path, "few")
    cluster.kill(master)
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # a store that nobody uses yet needs no durability
    monkeypatch.setattr(objects, "sync_filesystem", lambda path: None)
    fill(cluster, master, tmp_path, held=HELD, removed=TOMBSTONES, jobs=JOBS)
    cluster.start(master)
    pid = cluster.dev.member(master).pid
    until(lambda: len((cluster.get(master, "/v1/cluster") or {"jobs": ()})["jobs"]) == JOBS, "all jobs are known", 60.0)
    until(at_rest(cluster, pid), "the records are read", 60.0)
    cost_of_changes(cluster, pid, tmp_path, "again")
    many = cost_of_changes(cluster, pid, tmp_path, "many")

    assert many < 2.0 * few, (few, many)
