"""Measures a real environment beside one tar of it, and the memory that many small files take.

Always: the environment is this project's own. Both sides take the same way: uploaded to two masters
and distributed to three hosts. Nothing is deleted before the end, since ext4 creates files several
times as slowly where many were just deleted.
"""

import subprocess
import sysconfig
from pathlib import Path

from bench.measures.small_files import make_tree
from bench.results import Row
from bench.stage import cluster_of, memory_of, torrentdist
from torrentdist.dev.dev_cluster import DevCluster

ENVIRONMENT = Path(sysconfig.get_path("purelib")).parent
RATIO_BAR = 1.3
MEMORY_BAR = 60.0
"""In MB, for ten bundles."""
BUNDLES = 10


def measure(directory: Path) -> list[Row]:
    with cluster_of(directory / "cluster", masters=3, supervisors=3) as cluster:
        return _beside_tar(cluster, directory)


def measure_memory(directory: Path, *, files: int) -> list[Row]:
    """`files`: small files of each of ten bundles."""
    with cluster_of(directory / "cluster", masters=3, supervisors=3) as cluster:
        return _memory(cluster, directory, files)


def _memory(cluster: DevCluster, directory: Path, files: int) -> list[Row]:
    members = {"master": cluster.member("master-1").pid, "supervisor": cluster.member("supervisor-1").pid}
    before = {name: _anonymous(pid) for name, pid in members.items()}
    for number in range(BUNDLES):
        tree = directory / f"tree-{number}"
        make_tree(tree, files, seed=number)
        _there(cluster, tree, f"many-{number}")
    return [
        Row(
            key=f"small-memory-{name}",
            what=f"memory of a {name} with {BUNDLES} bundles of {files:,} small files",
            ours=_anonymous(pid) - before[name],
            unit="MB",
            bar=MEMORY_BAR,
        )
        for name, pid in members.items()
    ]


def _anonymous(pid: int) -> float:
    memory = memory_of(pid)
    assert memory is not None
    return memory.anon


def _beside_tar(cluster: DevCluster, directory: Path) -> list[Row]:
    archive = directory / "environment.tar"
    subprocess.run(["tar", "-C", str(ENVIRONMENT), "-cf", str(archive), "."], check=True)
    ours = _there(cluster, ENVIRONMENT, "environment")
    tar = _there(cluster, archive, "archive")
    return [
        Row(
            key="environment",
            what="upload and distribution of this project's environment",
            ours=ours,
            unit="s",
            reference=tar,
            against="one tar of it",
            ratio=ours / tar,
            bar=RATIO_BAR,
        )
    ]


def _there(cluster: DevCluster, path: Path, bundle: str) -> float:
    """Brings a bundle to two masters and all hosts. Returns the seconds."""
    uploaded = torrentdist(cluster, "upload", str(path), "--id", bundle)
    told = torrentdist(cluster, "bundle", "distribute", bundle, "--wait", "1")
    return uploaded.seconds + told.seconds
