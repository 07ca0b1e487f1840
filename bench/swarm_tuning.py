"""What each setting is worth: one changed at a time, in the lab and between two processes without a limit.

`python -m bench.swarm_tuning`; `--lab` and `--pair` make one of the two tables. Always holds: a table has the settings
as they are among its rows, measured like the others. Must not do: change two things at once.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.pair import command, seeder, write_content
from torrentdist.bundle.durable import sync_filesystem
from torrentdist.bundle.make import make_metafile

KIB, MIB = 1024, 1024 * 1024
LAB = (
    "",
    *(f"piece_length={piece * KIB}" for piece in (64, 128, 256)),
    *(f"blocks={blocks}" for blocks in (64, 128, 4000)),
    "send_buffer_watermark=65536,send_buffer_low_watermark=16384",
    "tick_interval=500",
    "request_queue_time=3",
    "whole_pieces_threshold=20",
)
PAIR = (
    "",
    *(f"aio_threads={threads}" for threads in (1, 2, 10)),
    *(f"hashing_threads={threads}" for threads in (1, 4)),
    *(f"send_buffer_watermark={kib * KIB},send_buffer_low_watermark={kib * KIB}" for kib in (64, 512, 8192)),
    *(f"max_queued_disk_bytes={mib * MIB}" for mib in (1, 16)),
    *(f"max_out_request_queue={depth},max_allowed_in_request_queue={depth}" for depth in (100, 500, 4000)),
    *(f"piece_length={piece * KIB}" for piece in (64, 256, 4096)),
)


def lab(overrides: str, hosts: int, size: int) -> str:
    options = ["--hosts", str(hosts), "--size", str(size), "--peers", "", "--with", overrides]
    ended = subprocess.run([sys.executable, "-m", "bench.swarm", *options], stdout=subprocess.PIPE, check=False)
    answer = json.loads(ended.stdout.splitlines()[-1])
    return f"| {overrides or 'as it is'} | {answer['ratio']:.2f} T | {answer['seeder_copies']:.2f} |"


def pair(overrides: str, directory: Path, mib: int, runs: int) -> str:
    """The best of some runs: what disturbs them only makes them slower."""
    source = directory / "source"
    if not source.exists():
        write_content(source, mib, 0)
    length = dict(item.split("=") for item in overrides.split(",") if item).get("piece_length")
    metafile = directory / "metafile"
    metafile.write_bytes(make_metafile(source / "content", piece_length=int(length) if length else None).raw)
    seconds = []
    for _ in range(runs):
        sync_filesystem(directory)
        with seeder("ours", metafile, source, changed=overrides) as port:
            fetch = command("fetch", "ours", metafile, directory / "to", port, changed=overrides)
            ended = subprocess.run(fetch, stdout=subprocess.PIPE, check=True)
        seconds.append(float(json.loads(ended.stdout)["seconds"]))
        shutil.rmtree(directory / "to")
    return f"| {overrides or 'as it is'} | {mib / min(seconds):.0f} MiB/s |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.swarm_tuning", description=__doc__)
    parser.add_argument("--lab", action="store_true", help="only what counts on slow links")
    parser.add_argument("--pair", action="store_true", help="only what counts without a limit")
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--size", type=int, help="MiB; default 32 in the lab, 2048 between two")
    parser.add_argument("--runs", type=int, default=3, help="between two")
    arguments = parser.parse_args()
    if not arguments.pair:
        print("| changed | last host | holder sent |\n|---|---|---|")
        for overrides in LAB:
            print(lab(overrides, arguments.hosts, arguments.size or 32), flush=True)
    if not arguments.lab:
        print("| changed | speed |\n|---|---|")
        with tempfile.TemporaryDirectory(prefix="torrentdist-tuning-") as directory:
            for overrides in PAIR:
                print(pair(overrides, Path(directory), arguments.size or 2048, arguments.runs), flush=True)


if __name__ == "__main__":
    main()
