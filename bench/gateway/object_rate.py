"""Measures how fast boto3 with eight threads reads an object from the gateway, against nginx with
the same file.

boto3 asks both for the same ranges. What it reads is dropped, so that no disk hides the difference.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from bench.gateway.other_servers import nginx
from bench.measures.metafile import write_random
from bench.results import Row, paired
from bench.stage import cluster_of, torrentdist

BAR = 1.25
"""At least 0.8 of the rate of nginx."""
THREADS = 8
MIB = 1024 * 1024
PART = 8 * MIB
"""Bytes of a range, as boto3's own transfers have them."""


def measure(directory: Path, *, mib: int, pairs: int) -> list[Row]:
    source = directory / "root" / "objects-1"
    source.mkdir(parents=True)
    write_random(source / "file.bin", mib)
    with (
        cluster_of(directory / "cluster", masters=1, supervisors=1) as cluster,
        nginx(directory / "nginx", directory / "root") as plain,
    ):
        torrentdist(cluster, "upload", str(source), "--id", "objects-1", "--min-replicas", "1")
        torrentdist(cluster, "bundle", "distribute", "objects-1")
        sides = [_client(cluster.member("supervisor-1").gateway + "/s3"), _client(plain)]
        for side in sides:
            _read(side, mib * MIB)
        taken = [(_read(sides[0], mib * MIB), _read(sides[1], mib * MIB)) for _ in range(pairs)]
    what = f"reading {mib} MiB by boto3 with {THREADS} threads through S3"
    return [paired("object-rate", what, taken, against="nginx with the file", bar=BAR)]


def _client(endpoint: str) -> Any:
    settings = Config(s3={"addressing_style": "path"}, max_pool_connections=THREADS, proxies={})
    keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=settings, **keys)


def _read(client: Any, size: int) -> float:
    def part(start: int) -> int:
        wanted = f"bytes={start}-{min(size, start + PART) - 1}"
        body = client.get_object(Bucket="objects-1", Key="file.bin", Range=wanted)["Body"]
        return sum(len(data) for data in body.iter_chunks(256 * 1024))

    began = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as threads:
        came = sum(threads.map(part, range(0, size, PART)))
    if came != size:
        raise RuntimeError(f"{came} bytes came instead of {size}")
    return time.perf_counter() - began
