"""What a change costs a master does not grow with the number of records: a real cluster, by its processor time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, NewCluster, until
from kazoo.client import KazooClient

from torrentdist.model.ids import BundleId, Digest, JobId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.records import BundleRecord, BundleState, JobRecord, JobStatus, encode
from torrentdist.testing.sample_trees import write_tree

TOMBSTONES = 4000
JOBS = 500
CHANGES = 4
"""Uploads, each with its removal."""


def processor_secs(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def at_rest(cluster: Cluster, pid: int) -> Callable[[], bool]:
    """True once a look at the cluster costs next to nothing: what came before is done."""
    last = [processor_secs(pid)]

    def look() -> bool:
        before, last[0] = last[0], processor_secs(pid)
        cluster.run("cluster").ok()
        return processor_secs(pid) - before < 0.1

    return look


def cost_of_changes(cluster: Cluster, pid: int, path: Path, prefix: str) -> float:
    before = processor_secs(pid)
    for number in range(CHANGES):
        write_tree(path / f"{prefix}{number}", {"file": f"{prefix}{number}".encode()})
        cluster.run("upload", str(path / f"{prefix}{number}"), "--id", f"{prefix}{number}").ok()
        cluster.run("bundle", "rm", f"{prefix}{number}").ok()
    return processor_secs(pid) - before


def fill(zookeeper: str) -> None:
    client = KazooClient(hosts=zookeeper + "/torrentdist")
    client.start(10)
    try:
        for number in range(TOMBSTONES):
            record = BundleRecord(
                id=BundleId(f"gone-{number}"),
                digest=Digest(f"{number:064x}"),
                size=1,
                files=1,
                state=BundleState.REMOVED,
                min_replicas=1,
                created_at=0.0,
            )
            client.create_async(f"/code-distributor/{record.id}", encode(record))
        for number in range(JOBS):
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
def test_an_upload_and_its_removal_cost_as_much_with_many_records(new_cluster: NewCluster, tmp_path: Path) -> None:
    """G11: every change would make every master walk over all bundles and jobs."""
    cluster = new_cluster(masters=1, supervisors=0)
    pid = next(process.pid for process in cluster.dev.state.processes if process.role == "master")
    write_tree(tmp_path / "kept", {"file": b"kept"})
    cluster.run("upload", str(tmp_path / "kept"), "--id", "kept").ok()
    cost_of_changes(cluster, pid, tmp_path, "warm")
    few = cost_of_changes(cluster, pid, tmp_path, "few")
    fill(cluster.dev.state.zookeeper)
    until(lambda: len(cluster.run("job", "ls").ok()) == JOBS, "all jobs are known", 60.0)
    until(at_rest(cluster, pid), "the records are read", 60.0)

    assert cost_of_changes(cluster, pid, tmp_path, "many") < 2.0 * few
