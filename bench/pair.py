"""Measures one holder and one downloader on loopback: our engine against bare libtorrent.

Each end is a process. The downloader measures from the start of the add until everything is synced
to disk. Both sides get the same metafile, start from an empty directory, and take turns, so that
other load on the machine hits both. With `--tls` both are members of a swarm with TLS, and the
reference is an SSL torrent of libtorrent's own.

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import libtorrent as lt

from bench import bare_libtorrent
from bench.stage import ON_LOOPBACK
from torrentdist.bundle.files.durability import sync_filesystem
from torrentdist.bundle.metafile import parse_metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.access.swarm_membership import SwarmMembership, name_on_wire
from torrentdist.model.configuration.config import SwarmConfig
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole
from torrentdist.security.authority.certificates import new_key
from torrentdist.security.authority.membership_files import MEMBERSHIP, keep_memberships, read_memberships
from torrentdist.security.authority.swarm_authority import (
    HOST_LIFETIME,
    issued_for,
    memberships_of,
    swarm_authority,
)
from torrentdist.swarm.engine.engine import Engine
from torrentdist.swarm.engine.session_settings import engine_config
from torrentdist.swarm.membership.wire_metafile import with_swarm_ca
from torrentdist.swarm.membership.wire_torrent import DH_PARAMETERS

MiB = 1024 * 1024
KINDS = ("reference", "ours")


def write_content(home: Path, mib: int, files: int) -> None:
    """Writes `files` files of 4 KiB. If `files` is 0, writes a large file for each 1024 MiB, and a
    tiny one."""
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


def memberships_at(metafile: Path) -> Sequence[SwarmMembership]:
    """Returns the memberships beside a metafile; none without TLS."""
    return read_memberships(metafile.with_name(MEMBERSHIP))


def shown_by(memberships: Sequence[SwarmMembership]) -> list[str]:
    """Returns what the reference has to show."""
    return [part for each in memberships for part in (each.certificate, each.key, DH_PARAMETERS)]


def reference_session(memberships: Sequence[SwarmMembership]) -> lt.session:
    return bare_libtorrent.new_session("pair", f"{ON_LOOPBACK}s" if memberships else ON_LOOPBACK)


def reference_params(metafile: Path, home: Path, memberships: Sequence[SwarmMembership]) -> lt.add_torrent_params:
    if memberships:
        of_reference = metafile.with_name("metafile-of-reference")
        raw = metafile.read_bytes()
        of_reference.write_bytes(with_swarm_ca(raw, memberships[0].ca))
        own = home / name_on_wire(parse_metafile(raw).digest)
        if (home / "content").exists() and not own.exists():
            own.symlink_to("content")  # libtorrent looks for the files below the torrent's name
        metafile = of_reference
    return bare_libtorrent.new_params(str(metafile), str(home))


def fetch_reference(metafile: Path, home: Path, port: int) -> float:
    memberships = memberships_at(metafile)
    session = reference_session(memberships)
    session.listen_port()
    started = time.perf_counter()
    params = reference_params(metafile, home, memberships)
    bare_libtorrent.fetch(session, params, [f"127.0.0.1:{port}"], shown_by(memberships))
    return time.perf_counter() - started


async def new_engine(memberships: Sequence[SwarmMembership]) -> Engine:
    engine = Engine(engine_config(SwarmConfig(), "127.0.0.1", tls=bool(memberships)))
    engine.join(memberships)
    await engine.start()
    return engine


async def seed_ours(raw: bytes, home: Path, memberships: Sequence[SwarmMembership]) -> None:
    engine = await new_engine(memberships)
    engine.seed(parse_metafile(raw), home)
    print(engine.port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await engine.close()


async def fetch_ours(raw: bytes, home: Path, port: int, memberships: Sequence[SwarmMembership]) -> float:
    engine = await new_engine(memberships)
    meta = parse_metafile(raw)
    started = time.perf_counter()
    peer = PeerAddress(host="127.0.0.1", port=port, role=PeerRole.MASTER)
    await engine.fetch(meta, home, [peer]).wait_done()
    await asyncio.to_thread(sync_filesystem, home)
    seconds = time.perf_counter() - started
    await engine.close()
    return seconds


def memory() -> dict[str, int]:
    """Returns the peak memory of this process in MiB."""
    return {"peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}


def play(role: str, kind: str, metafile: Path, home: Path, port: int) -> None:
    raw, memberships = metafile.read_bytes(), memberships_at(metafile)
    if role == "seed" and kind == "reference":
        params = reference_params(metafile, home, memberships)
        bare_libtorrent.seed(reference_session(memberships), params, shown_by(memberships))
        return
    if role == "seed":
        asyncio.run(seed_ours(raw, home, memberships))
        return
    home.mkdir()
    reference = kind == "reference"
    seconds = (
        fetch_reference(metafile, home, port) if reference else asyncio.run(fetch_ours(raw, home, port, memberships))
    )
    print(json.dumps({"seconds": seconds, **memory()}), flush=True)
    os._exit(0)  # the session's end takes time and is not measured


def command(role: str, kind: str, metafile: Path, home: Path, port: int = 0, *, changed: str = "") -> list[str]:
    """`changed`: settings that differ from ours, for bench/lab/changed_settings.py."""
    parts = ["--role", role, "--kind", kind, "--metafile", metafile, "--home", home, "--port", port]
    changes = ["bench.lab.changed_settings", changed] if changed else []
    return [sys.executable, "-m", *changes, "bench.pair", *map(str, parts)]


@contextmanager
def seeder(kind: str, metafile: Path, home: Path, *, changed: str = "") -> Iterator[int]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    seeding = command("seed", kind, metafile, home, changed=changed)
    with subprocess.Popen(seeding, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def measure(directory: Path, mib: int, files: int, rounds: int, *, tls: bool = False) -> dict[str, Any]:
    if tls:
        own = new_key()
        issued = issued_for([swarm_authority(new_key())], own.public_key(), HOST_LIFETIME, time.time())
        keep_memberships(directory / MEMBERSHIP, memberships_of(own, issued))
    write_content(directory / "source", mib, files)
    metafile = directory / "metafile"
    metafile.write_bytes(make_metafile(directory / "source" / "content", packed=False).raw)
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
        "what": (f"{files} files of 4 KiB" if files else f"{mib} MiB") + (" over TLS" if tls else ""),
        "reference_seconds": round(reference, 3),
        "ours_seconds": round(ours, 3),
        "ratio": round(ours / reference, 3),
        "pairs": list(zip(seconds["ours"], seconds["reference"], strict=True)),
        "ours_peak_rss_mib": peaks["ours"],
        "reference_peak_rss_mib": peaks["reference"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--files", type=int, default=0, help="number of files, of 4 KiB each, instead of --mib")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tls", action="store_true", help="both in a swarm with TLS")
    parser.add_argument("--dir", type=Path, default=None, help="where to work; default: the temporary directory")
    for name, kind in (("role", str), ("kind", str), ("metafile", Path), ("home", Path), ("port", int)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        play(args.role, args.kind, args.metafile, args.home, args.port)
        return
    with tempfile.TemporaryDirectory(dir=args.dir, prefix="torrentdist-pair-") as directory:
        print(json.dumps(measure(Path(directory), args.mib, args.files, args.rounds, tls=args.tls)))


if __name__ == "__main__":
    main()
