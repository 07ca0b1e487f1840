"""The cost of a change at a master does not grow with the number of records: a real cluster,
measured by its processor time."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, NewCluster, until
from kazoo.client import KazooClient
from quick_callbacks import overlook_start

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.store import objects
from torrentdist.bundle.store.store import Store
from torrentdist.model.ids import BundleId, Digest, JobId, MasterId, StoreId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.records import BundleRecord, BundleState, JobRecord, JobStatus, ReplicaRecord, encode
from torrentdist.testing.sample_trees import write_tree

HELD = 1000
TOMBSTONES = 4000
JOBS = 1000
CHANGES = 8
"""Uploads, each with its removal: together far more processor time than what a clock tick can
hide."""
MOST = 1.5
"""Cost of a change with many records, as a multiple of its cost in an empty cluster."""
IDLE_SHARE = 0.03
"""Share of a processor below which a master counts as idle."""
LISTED = 5000
LIST_SECS = 1.0


def processor_secs(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


@dataclass
class Measured:
    """A cluster of one master, and what its changes cost that master."""

    cluster: Cluster
    master: str
    idle: float = 0.0
    """Share of a processor that the master uses while nobody asks anything of it."""
    cost: float = 0.0
    """Seconds of processor time that its changes cost, without what it uses anyway."""

    @property
    def pid(self) -> int:
        return self.cluster.dev.member(self.master).pid

    def rest(self) -> None:
        """Returns once the master is idle, and notes what it uses then: what came before, such as
        the first look through its store, is done."""
        began, before = time.monotonic(), processor_secs(self.pid)

        def look() -> bool:
            nonlocal began, before
            if time.monotonic() - began < 2.0:
                return False
            now, used = time.monotonic(), processor_secs(self.pid)
            self.idle = (used - before) / (now - began)
            began, before = now, used
            return self.idle < IDLE_SHARE

        until(look, f"{self.master} is idle", 120.0)


def change(measured: list[Measured], path: Path, name: str) -> None:
    """Uploads and removes one bundle in all clusters at the same time, so that each of them is
    slowed down by the same load."""
    write_tree(path / name, {"file": name.encode()})
    before = [processor_secs(one.pid) for one in measured]
    began = time.monotonic()
    for command in (("upload", path / name, "--id", name), ("bundle", "rm", name)):
        for running in [one.cluster.begin(*command) for one in measured]:
            running.end().ok()
    secs = time.monotonic() - began
    for one, used in zip(measured, before, strict=True):
        one.cost += processor_secs(one.pid) - used - one.idle * secs


def publish_bundles(store_dir: Path, work: Path, count: int) -> Iterator[tuple[BundleRecord, StoreId]]:
    """Puts bundles into the store of a master that does not run. The caller writes their
    records."""
    store = Store.open(store_dir)
    try:
        for number in range(count):
            content = work / "held"
            write_tree(content, {"file": f"held {number}".encode()})
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
    client = KazooClient(hosts=cluster.tree)
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
    """G11: every change would make every master walk over all bundles and jobs. It takes long
    because thousands of records are written first."""
    measured = []
    for _ in range(2):
        cluster = new_cluster(masters=1, supervisors=0)
        (master,) = cluster.masters()
        measured.append(Measured(cluster, master))
    empty, full = measured
    write_tree(tmp_path / "kept", {"file": b"kept"})
    for one in measured:
        one.cluster.run("upload", tmp_path / "kept", "--id", "kept").ok()
    full.cluster.kill(full.master)
    with monkeypatch.context() as hurried:  # a store that nobody uses yet needs no durability
        hurried.setattr(os, "fsync", lambda fd: None)
        hurried.setattr(objects, "sync_filesystem", lambda path: None)
        fill(full.cluster, full.master, tmp_path, held=HELD, removed=TOMBSTONES, jobs=JOBS)
    full.cluster.start(full.master)
    until(lambda: full.cluster.status(full.master, "/leaderz") == 200, "it leads again", 60.0)
    change(measured, tmp_path, "first")
    for one in measured:
        one.rest()
        one.cost = 0.0
    overlook_start()
    for number in range(CHANGES):
        change(measured, tmp_path, f"change-{number}")
    jobs = len((full.cluster.get(full.master, "/v1/cluster") or {"jobs": ()})["jobs"])

    overlook_start()  # Python's collector goes through all these records now and then, for about 50 ms
    print(f"{CHANGES} changes: {empty.cost:.2f} s of processor time, with many records {full.cost:.2f} s")
    assert JOBS == jobs, "the records were not all there"
    assert full.cost < MOST * empty.cost, (full, empty)
