"""Measures `torrentdist upload` of a 1 MiB bundle until three masters hold it, with the start of
Python.

The cluster's periods are a minute each, so that an upload that waits for one of them shows it.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path

from bench.results import Row
from bench.stage import Ended, cluster_of, torrentdist
from torrentdist.dev.dev_cluster import DevCluster

BAR = 1.5
SLOW = {
    "swarm": {"fetching_secs": 60.0, "seeding_secs": 60.0},
    "replication": {"sync_secs": 120.0},
}
MIB = 1024 * 1024


def measure(directory: Path, *, uploads: int) -> list[Row]:
    with cluster_of(directory / "cluster", masters=3, supervisors=0, settings=SLOW) as cluster:
        ended = [upload_one(cluster, directory / f"bundle-{number}", 3) for number in range(uploads)]
    seconds = [one.seconds for one in ended]
    inside = statistics.median(float(one.answer["seconds"]) for one in ended)
    return [
        Row(
            key="upload",
            what="upload of 1 MiB to 3 masters",
            ours=statistics.median(seconds),
            unit="s",
            bar=BAR,
            note=f"{uploads} uploads, {min(seconds):.2f}-{max(seconds):.2f} s; {inside:.2f} s without Python's start; "
            "all periods of the cluster are 60 s or more",
        )
    ]


def upload_one(cluster: DevCluster, bundle: Path, masters: int) -> Ended:
    """Makes a bundle of 1 MiB, and uploads it to all masters of a cluster."""
    bundle.mkdir()
    (bundle / "code.bin").write_bytes(os.urandom(MIB))
    ended = torrentdist(cluster, "upload", str(bundle), "--min-replicas", str(masters))
    assert ended.answer["replicas"] == masters, ended.answer
    return ended
