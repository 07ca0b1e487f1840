"""Shows that the processor time of a libtorrent downloader grows with the square of a v2 torrent's
files.

    python many_files.py                      a table: the same bytes in more and more files
    python many_files.py 4000                 where a downloader's time goes (needs Linux' perf)
    python many_files.py 4000 suggest_mode=1  the same with other settings of the downloaders

It needs Python and libtorrent 2.x only. One seeder and some downloaders are processes on loopback.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import resource
import subprocess
import tempfile
import time
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import libtorrent as lt

SIZE = 24_000_000
"""Bytes of each torrent, whatever the number of files."""
DOWNLOADERS = 4
BASE = {
    "enable_dht": False,
    "enable_lsd": False,
    "enable_upnp": False,
    "enable_natpmp": False,
    "enable_outgoing_utp": False,
    "enable_incoming_utp": False,
    "allow_multiple_connections_per_ip": True,
    "alert_mask": 0,
}
LONGEST_SECS = 60.0
SPAWN = multiprocessing.get_context("spawn")


def make(top: Path, files: int, *, v2: bool) -> bytes:
    """Writes the files and returns the torrent."""
    chance = random.Random(files)
    (top / "content").mkdir(parents=True)
    for number in range(files):
        (top / "content" / f"{number:06}").write_bytes(chance.randbytes(SIZE // files))
    flags = lt.create_torrent.v2_only if v2 else lt.create_torrent.v1_only
    made = lt.create_torrent(lt.list_files(str(top / "content")), 32 * 1024, flags)
    lt.set_piece_hashes(made, str(top))
    return lt.bencode(made.generate())


def begin(
    torrent: bytes, home: Path, settings: dict[str, Any], port: Queue[int]
) -> tuple[lt.session, lt.torrent_handle]:
    ours = lt.session({**BASE, "listen_interfaces": "127.0.0.1:0", **settings})
    params = lt.load_torrent_buffer(torrent)
    params.save_path = str(home)
    params.flags &= ~(lt.torrent_flags.auto_managed | lt.torrent_flags.paused)
    handle = ours.add_torrent(params)
    while not ours.listen_port():
        time.sleep(0.01)
    port.put(ours.listen_port())
    return ours, handle


def seed(torrent: bytes, home: Path, port: Queue[int], ready: Any) -> None:
    _, handle = begin(torrent, home, {}, port)
    while not handle.status().is_seeding:
        time.sleep(0.05)
    ready.set()
    time.sleep(4 * LONGEST_SECS)


def fetch(
    torrent: bytes, home: Path, settings: dict[str, Any], port: Queue[int], peers: Queue[list[int]], spent: Queue[float]
) -> None:
    ours, handle = begin(torrent, home, settings, port)
    others, before = peers.get(), resource.getrusage(resource.RUSAGE_SELF)
    for other in others:
        if other != ours.listen_port():
            handle.connect_peer(("127.0.0.1", other))
    deadline = time.monotonic() + LONGEST_SECS
    while not handle.status().is_seeding and time.monotonic() < deadline:
        time.sleep(0.05)
    after = resource.getrusage(resource.RUSAGE_SELF)
    secs = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    spent.put(secs if handle.status().is_seeding else float("nan"))
    time.sleep(4 * LONGEST_SECS)  # the others still need this one


def processor_secs(torrent: bytes, top: Path, settings: dict[str, Any], perf: str = "") -> float:
    """Returns the processor seconds of a downloader, as a mean. `settings`: of the downloaders."""
    port, peers, spent, ready = SPAWN.Queue(), SPAWN.Queue(), SPAWN.Queue(), SPAWN.Event()
    processes = [SPAWN.Process(target=seed, args=(torrent, top, port, ready))]
    with tempfile.TemporaryDirectory(dir=top) as homes:
        for number in range(DOWNLOADERS):
            home = Path(homes, str(number))
            processes.append(SPAWN.Process(target=fetch, args=(torrent, home, settings, port, peers, spent)))
        try:
            for process in processes:
                process.start()
            ports = [port.get(timeout=LONGEST_SECS) for _ in processes]
            ready.wait(LONGEST_SECS)
            watch = [] if not perf else [str(processes[1].pid)]
            watching = [
                subprocess.Popen(["perf", "record", "-q", "-e", "cpu-clock", "-g", "-o", perf, "-p", pid])
                for pid in watch
            ]
            time.sleep(0.5)
            for _ in range(DOWNLOADERS):
                peers.put(ports)
            secs = [spent.get(timeout=2 * LONGEST_SECS) for _ in range(DOWNLOADERS)]
            for process in watching:
                process.send_signal(2)
                process.wait()
        finally:
            for process in processes:
                process.kill()
                process.join()
    return sum(secs) / DOWNLOADERS


def growth() -> None:
    print(f"| files | v2: processor s of each of {DOWNLOADERS} downloaders | v1 |\n|--:|--:|--:|")
    for files in (2, 1000, 2000, 4000, 8000):
        spent = []
        for v2 in (True, False):
            with tempfile.TemporaryDirectory() as top:
                spent.append(processor_secs(make(Path(top), files, v2=v2), Path(top), {}))
        print(f"| {files:,} | {spent[0]:.2f} | {spent[1]:.2f} |", flush=True)


def profile(files: int, settings: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as top:
        data = os.path.join(top, "perf.data")
        processor_secs(make(Path(top), files, v2=True), Path(top), settings, data)
        report = ["perf", "report", "-i", data, "--no-children", "--stdio", "-g", "none", "--percent-limit", "1"]
        subprocess.run(report, check=True)


def setting(text: str) -> tuple[str, Any]:
    """Parses `name=number`."""
    name, _, value = text.partition("=")
    return name, type(lt.default_settings()[name])(int(value))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=int, nargs="?")
    parser.add_argument("settings", type=setting, nargs="*")
    chosen = parser.parse_args()
    print(f"libtorrent {lt.version}", flush=True)
    if chosen.files:
        profile(chosen.files, dict(chosen.settings))
    else:
        growth()
