"""Measures `torrentdist download` from one holder against a bare, tuned libtorrent pair.

Both sides seed the same files, start a process to fetch them, and end with a syncfs. They take
turns, and the order alternates.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable
from pathlib import Path

import httpx

from bench.pair import measure as measure_pairs
from bench.pair import write_content
from bench.results import Row, paired
from bench.stage import Ended, bare_fetch, bare_seeder, cluster_of, torrentdist
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.dev.dev_cluster import DevCluster

MEMORY_BAR = 250.0
GROWTH_BAR = 32.0
"""Limit in MB for the growth of memory between the second and the last quarter of a download of 4
GiB. The hash trees of that many blocks take up to about 16 MB by the end, and the allocator's noise
is as much again."""
STEADY_MIB = 2048
"""A smaller download ends before its memory use is steady."""


def measure(directory: Path, *, mib: int, pairs: int, files: int, file_pairs: int) -> list[Row]:
    with cluster_of(directory / "cluster", masters=1, supervisors=0) as cluster:
        large = _large(cluster, directory / "large", mib, pairs)
        small = _small(cluster, directory / "small", files, file_pairs)
        supervised = _through_supervisor(cluster, directory / "supervised", mib)
    return [*large, *small, *supervised]


def measure_tls(directory: Path, *, mib: int, pairs: int) -> list[Row]:
    taken = measure_pairs(directory, mib, 0, pairs, tls=True)["pairs"]
    what = f"{mib} MiB in a swarm with TLS, engine to engine"
    return [paired("swarm-tls", what, taken, against="libtorrent's own SSL torrent and syncfs", bar=1.25)]


def _large(cluster: DevCluster, directory: Path, mib: int, pairs: int) -> list[Row]:
    write_content(directory / "source", mib, 0)
    held = _upload(cluster, directory, f"large-{mib}")
    taken = _take_turns(cluster, directory, f"large-{mib}", held, pairs)
    row = paired(
        "download-large",
        f"download of {mib} MiB, one holder",
        [(ours.seconds, bare.seconds) for ours, bare in taken],
        against="bare libtorrent pair and syncfs",
        bar=1.25,
    )
    return [row, *_memory(mib, [ours for ours, _ in taken])]


def _memory(mib: int, downloads: list[Ended]) -> list[Row]:
    peak = max(sample.peak_rss for ended in downloads for sample in ended.memory)
    anon = max(sample.anon for ended in downloads for sample in ended.memory)
    growth = statistics.median(_growth([sample.anon for sample in ended.memory]) for ended in downloads)
    what = f"downloader of {mib} MiB"
    return [
        Row(
            key="downloader-memory",
            what=f"{what}: peak RSS",
            ours=peak,
            unit="MB",
            bar=MEMORY_BAR,
            note=f"anonymous {anon:.0f} MB",
        ),
        Row(
            key="downloader-growth",
            what=f"{what}: growth while it runs",
            ours=growth,
            unit="MB",
            bar=GROWTH_BAR if mib >= STEADY_MIB else None,
        ),
    ]


def _growth(samples: list[float]) -> float:
    """Returns the growth from the second quarter, when everything is set up, to the last."""
    quarter = max(1, len(samples) // 4)
    return statistics.median(samples[-quarter:]) - statistics.median(samples[quarter : 2 * quarter])


def _small(cluster: DevCluster, directory: Path, files: int, pairs: int) -> list[Row]:
    write_content(directory / "source", 0, files)
    held = _upload(cluster, directory, f"files-{files}")
    # The reference moves the files one by one.
    (directory / "metafile").write_bytes(make_metafile(held / "content", packed=False).raw)
    taken = _take_turns(cluster, directory, f"files-{files}", held, pairs, directory / "metafile")
    row = paired(
        "download-files",
        f"download of {files} files of 4 KiB",
        [(ours.seconds, bare.seconds) for ours, bare in taken],
        against="bare libtorrent pair and one syncfs",
        bar=1.5,
    )
    return [row, _wire(cluster, f"files-{files}")]


def _wire(cluster: DevCluster, bundle: str) -> Row:
    """Measures the bytes that a client receives if it accepts gzip, as ours does."""
    with httpx.Client(trust_env=False, headers=cluster.headers()) as http:
        response = http.get(f"{cluster.masters()[0]}/v1/bundles/{bundle}/metafile")
    sent, raw = response.num_bytes_downloaded, len(response.content)
    encoding = response.headers.get("Content-Encoding", "none")
    return Row(
        key="metafile-wire",
        what=f"metafile of {bundle.partition('-')[2]} files, on the wire",
        ours=sent / 1000,
        reference=raw / 1000,
        unit="kB",
        against="the metafile itself",
        ratio=sent / raw,
        bar=0.9,
        note=f"Content-Encoding: {encoding}",
    )


def _through_supervisor(cluster: DevCluster, directory: Path, mib: int) -> list[Row]:
    """Measures downloads through a supervisor, for information: the host keeps the bundle, and DEST
    is a copy, a hard link or a reflink of it."""
    directory.mkdir()
    cluster.write_config("supervisor-1", port=0)
    cluster.start("supervisor-1")
    cluster.wait_started("supervisor-1")
    cluster.wait_ready()
    gateway = cluster.member("supervisor-1").gateway
    config = cluster.dir / "client.toml"
    config.write_text(config.read_text().replace('supervisor = ""', f'supervisor = "{gateway}"'))
    ended = torrentdist(cluster, "download", f"large-{mib}", str(directory / "dest"))
    shutil.rmtree(directory / "dest")
    return [
        Row(key="download-supervisor", what=f"download of {mib} MiB via the supervisor", ours=ended.seconds, unit="s")
    ]


def _upload(cluster: DevCluster, directory: Path, bundle: str) -> Path:
    """Uploads the bundle and returns the directory in which the master holds it."""
    content = directory / "source" / "content"
    answer = torrentdist(cluster, "upload", str(content), "--id", bundle, "--min-replicas", "1").answer
    shutil.rmtree(directory / "source")
    return cluster.dir / "master-1" / "objects" / str(answer["digest"])


def _take_turns(
    cluster: DevCluster, directory: Path, bundle: str, held: Path, pairs: int, metafile: Path | None = None
) -> list[tuple[Ended, Ended]]:
    """`metafile`: the one that the reference uses; None: the bundle's own."""
    dest, metafile = directory / "dest", metafile or held / "metafile"

    def ours() -> Ended:
        return _emptying(dest, lambda: torrentdist(cluster, "download", bundle, str(dest)))

    def bare() -> Ended:
        return _emptying(dest, lambda: bare_fetch(metafile, dest, port))

    taken = []
    with bare_seeder(metafile, held) as port:
        for turn in range(pairs):
            if turn % 2:
                reference, own = bare(), ours()
            else:
                own, reference = ours(), bare()
            taken.append((own, reference))
    return taken


def _emptying(dest: Path, act: Callable[[], Ended]) -> Ended:
    ended = act()
    shutil.rmtree(dest)
    return ended
