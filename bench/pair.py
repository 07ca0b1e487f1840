"""Measures one holder and one downloader on loopback: our engine against bare libtorrent.

Each end is a process. The downloader measures from the start of the add until everything is synced
to disk. Both sides get the same metafile, start from an empty directory, and take turns, so that
other load on the machine hits both.

Never: give the reference settings that are worse than its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import libtorrent as lt

from torrentdist.bundle.files.durability import sync_filesystem
from torrentdist.bundle.metafile import parse_metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.configuration.config import SwarmConfig
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole
from torrentdist.swarm.engine.engine import Engine
from torrentdist.swarm.engine.session_settings import engine_config

MiB = 1024 * 1024
KINDS = ("reference", "ours")
TUNED: dict[str, Any] = {
    "listen_interfaces": "127.0.0.1:0",
    "alert_mask": lt.alert_category.status | lt.alert_category.storage | lt.alert_category.error,
    "enable_dht": False,
    "enable_lsd": False,
    "enable_upnp": False,
    "enable_natpmp": False,
    "enable_incoming_utp": False,
    "enable_outgoing_utp": False,
    "in_enc_policy": int(lt.enc_policy.disabled),
    "out_enc_policy": int(lt.enc_policy.disabled),
    "allow_multiple_connections_per_ip": True,
    "tick_interval": 25,
    "unchoke_slots_limit": -1,
    "send_buffer_watermark": 2 * MiB,
    "send_buffer_low_watermark": 512 * 1024,
    "send_buffer_watermark_factor": 150,
    "request_queue_time": 1,
    "max_out_request_queue": 1500,
    "max_allowed_in_request_queue": 4000,
    "max_queued_disk_bytes": 4 * MiB,
    "aio_threads": 4,
    "hashing_threads": 2,
    "file_pool_size": 256,
}


def write_content(home: Path, mib: int, files: int) -> None:
    """`files` files of 4 KiB, or else one large file for each 1024 MiB and a tiny one."""
    content = home / "content"
    content.mkdir(parents=True)
    if files:
        for number in range(files):
            place = content / f"{number // 100:03}" / f"{number:05}"
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(os.urandom(4096))
        return
    (content / "tiny").write_bytes(b"tiny")
    for part in range(0, mib, 1024):
        with open(content / f"part-{part:05}", "wb") as out:
            for _ in range(min(1024, mib - part)):
                out.write(os.urandom(MiB))


def reference_session() -> lt.session:
    return lt.session(lt.session_params(TUNED))  # type: ignore[call-overload]


def add_params(raw: bytes, home: Path) -> lt.add_torrent_params:
    params = lt.load_torrent_buffer(raw)
    params.save_path = str(home)
    return params


def seed_reference(raw: bytes, home: Path) -> None:
    session = reference_session()
    params = add_params(raw, home)
    assert params.ti is not None
    params.flags = lt.torrent_flags.seed_mode
    params.verified_pieces = [True] * params.ti.num_pieces()
    session.add_torrent(params)
    print(session.listen_port(), flush=True)
    sys.stdin.read()


def fetch_reference(raw: bytes, home: Path, port: int) -> float:
    session = reference_session()
    session.listen_port()
    started = time.perf_counter()
    params = add_params(raw, home)
    params.flags = lt.torrent_flags.no_verify_files
    params.peers = [("127.0.0.1", port)]
    handle = session.add_torrent(params)
    finished = False
    while True:
        session.wait_for_alert(1000)
        for alert in session.pop_alerts():
            if isinstance(alert, lt.torrent_finished_alert):
                finished = True
                handle.flush_cache()
            elif isinstance(alert, lt.cache_flushed_alert) and finished:
                sync_filesystem(home)
                return time.perf_counter() - started


async def seed_ours(raw: bytes, home: Path) -> None:
    engine = Engine(engine_config(SwarmConfig(), "127.0.0.1"))
    await engine.start()
    engine.seed(parse_metafile(raw), home)
    print(engine.port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await engine.close()


async def fetch_ours(raw: bytes, home: Path, port: int) -> float:
    engine = Engine(engine_config(SwarmConfig(), "127.0.0.1"))
    await engine.start()
    meta = parse_metafile(raw)
    started = time.perf_counter()
    peer = PeerAddress(host="127.0.0.1", port=port, role=PeerRole.MASTER)
    await engine.fetch(meta, home, [peer]).wait_done()
    await asyncio.to_thread(sync_filesystem, home)
    seconds = time.perf_counter() - started
    await engine.close()
    return seconds


def memory() -> dict[str, int]:
    """What this process took at most, in MiB."""
    return {"peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def play(role: str, kind: str, raw: bytes, home: Path, port: int) -> None:
    if role == "seed":
        seed_reference(raw, home) if kind == "reference" else asyncio.run(seed_ours(raw, home))
        return
    home.mkdir()
    fetch: Callable[[], float] = lambda: (  # noqa: E731
        fetch_reference(raw, home, port) if kind == "reference" else asyncio.run(fetch_ours(raw, home, port))
    )
    print(json.dumps({"seconds": fetch(), **memory()}), flush=True)
    os._exit(0)  # The reference's session may take its time to go; nobody measures that.


def command(role: str, kind: str, metafile: Path, home: Path, port: int = 0, *, changed: str = "") -> list[str]:
    """`changed`: other settings than ours, for bench/lab/changed_settings.py."""
    parts = ["--role", role, "--kind", kind, "--metafile", metafile, "--home", home, "--port", port]
    run = ["-m", "bench.lab.changed_settings", changed, "bench.pair"] if changed else [__file__]
    return [sys.executable, *run, *map(str, parts)]


@contextmanager
def seeder(kind: str, metafile: Path, home: Path, *, changed: str = "") -> Iterator[int]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    seeding = command("seed", kind, metafile, home, changed=changed)
    with subprocess.Popen(seeding, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def measure(directory: Path, mib: int, files: int, rounds: int) -> dict[str, Any]:
    write_content(directory / "source", mib, files)
    metafile = directory / "metafile"
    metafile.write_bytes(make_metafile(directory / "source" / "content").raw)
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    peaks = dict.fromkeys(KINDS, 0)
    for _ in range(rounds):
        for kind in KINDS:
            sync_filesystem(directory)
            with seeder(kind, metafile, directory / "source") as port:
                fetch = command("fetch", kind, metafile, directory / "fetched", port)
                answer = json.loads(subprocess.run(fetch, stdout=subprocess.PIPE, check=True, timeout=600).stdout)
            seconds[kind].append(answer["seconds"])
            peaks[kind] = max(peaks[kind], answer["peak_rss_mib"])
            shutil.rmtree(directory / "fetched")
    reference, ours = (statistics.median(seconds[kind]) for kind in KINDS)
    return {
        "what": f"{files} files of 4 KiB" if files else f"{mib} MiB",
        "reference_seconds": round(reference, 3),
        "ours_seconds": round(ours, 3),
        "ratio": round(ours / reference, 3),
        "ours_peak_rss_mib": peaks["ours"],
        "reference_peak_rss_mib": peaks["reference"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--files", type=int, default=0, help="so many files of 4 KiB instead")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, default=None, help="where to work; default: the temporary directory")
    for name, kind in (("role", str), ("kind", str), ("metafile", Path), ("home", Path), ("port", int)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        play(args.role, args.kind, args.metafile.read_bytes(), args.home, args.port)
        return
    with tempfile.TemporaryDirectory(dir=args.dir, prefix="torrentdist-pair-") as directory:
        print(json.dumps(measure(Path(directory), args.mib, args.files, args.rounds)))


if __name__ == "__main__":
    main()
