"""Measures the memory of a master that seeds many small bundles, at rest and while clients come and
go.

Always: when the clock starts, every bundle is uploaded, and the master has published and seeds all
of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import statistics
import time
from pathlib import Path

from bench.results import Row
from bench.stage import Memory, cluster_of, memory_of
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.bundles.client_peer import client_peer, seeding_home
from torrentdist.client.bundles.download import DownloadWanted, download
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.dev.dev_cluster import DevCluster
from torrentdist.model.configuration.config import ClientConfig, Config
from torrentdist.model.ids import BundleId

MEMORY_BAR = 300.0
GROWTH_BAR = 8.0
UPLOADS_AT_ONCE = 16
SAMPLE_SECS = 0.25


def measure(directory: Path, *, bundles: int, seconds: float) -> list[Row]:
    with cluster_of(directory / "cluster", masters=1, supervisors=0) as cluster:
        empty = _memory(cluster)
        names = asyncio.run(_fill(cluster, directory, bundles))
        samples, downloads = asyncio.run(_use(cluster, directory, names, seconds))
    return _rows(bundles, seconds, empty, samples, downloads)


def _rows(bundles: int, seconds: float, empty: Memory, samples: list[Memory], downloads: int) -> list[Row]:
    quarter = max(1, len(samples) // 4)
    early, late = samples[:quarter], samples[-quarter:]
    growth = statistics.median(one.anon for one in late) - statistics.median(one.anon for one in early)
    return [
        Row(
            key="seeding-memory",
            what=f"master seeding {bundles} bundles: RSS",
            ours=max(one.rss for one in samples),
            unit="MB",
            bar=MEMORY_BAR,
            note=f"anonymous {max(one.anon for one in samples):.0f} MB; {empty.rss:.0f} MB with no bundle",
        ),
        Row(
            key="seeding-growth",
            what=f"the same: growth in {seconds:g} s of use",
            ours=growth,
            unit="MB",
            bar=GROWTH_BAR,
            note=f"{downloads} downloads meanwhile",
        ),
    ]


def _memory(cluster: DevCluster) -> Memory:
    found = memory_of(cluster.member("master-1").pid)
    assert found is not None, "the master has ended"
    return found


def _config(cluster: DevCluster) -> Config:
    return Config(client=ClientConfig(masters=cluster.masters(), supervisor="", token_file=str(cluster.token_file)))


async def _fill(cluster: DevCluster, directory: Path, bundles: int) -> list[BundleId]:
    """Uploads all bundles as one peer. A process for each would take minutes and change nothing for
    the master."""
    names = [BundleId(f"small-{number}") for number in range(bundles)]
    turns = asyncio.Semaphore(UPLOADS_AT_ONCE)
    config = _config(cluster)
    async with MasterClient(config.client) as client, client_peer(client, config.swarm, ()) as peer:

        async def upload(name: BundleId, meta: Metafile) -> None:
            async with turns:
                await client.open_upload(name, meta.raw, 1)
                view = await client.wait_replicas(name, 1, 60.0)
                assert view.replicas == 1, view

        with contextlib.ExitStack() as stack:
            metas = {name: _write_bundle(directory / name) for name in names}
            for name, meta in metas.items():
                peer.engine.seed(meta, stack.enter_context(seeding_home(meta, directory / name)))
            await peer.announce()
            await asyncio.gather(*(upload(name, meta) for name, meta in metas.items()))
    return names


def _write_bundle(bundle: Path) -> Metafile:
    bundle.mkdir()
    (bundle / "main.py").write_bytes(os.urandom(2_000))
    (bundle / "data.bin").write_bytes(os.urandom(60_000))
    return make_metafile(bundle)


async def _use(cluster: DevCluster, directory: Path, names: list[BundleId], seconds: float) -> tuple[list[Memory], int]:
    """Samples the master's memory while one client after another downloads a bundle."""
    samples: list[Memory] = []
    config = _config(cluster)
    until = time.monotonic() + seconds
    asked = itertools.cycle(names)
    downloads = 0
    while time.monotonic() < until:
        async with MasterClient(config.client) as client:
            await download(client, config, next(asked), directory / "dest", DownloadWanted(timeout=60.0))
        shutil.rmtree(directory / "dest")
        downloads += 1
        samples.append(_memory(cluster))
        await asyncio.sleep(SAMPLE_SECS)
    return samples, downloads
