"""A real S3 server for tests: SeaweedFS where `weed` is on the PATH, else moto's.

Always: the server and its files are gone afterwards. SeaweedFS ignores SIGTERM, so it is killed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from torrentdist.host.process.listening_sockets import free_ports

START_SECS = 60.0
MOTO = "from moto.server import main; import sys; main(sys.argv[1:])"


class S3Server(NamedTuple):
    process: subprocess.Popen[bytes]
    url: str


@contextmanager
def s3_server(work: Path) -> Iterator[S3Server]:
    """Yields a server that keeps its objects in `work`."""
    weed = shutil.which("weed")
    port, *others = free_ports(8)
    command = [sys.executable, "-c", MOTO, "-H", "127.0.0.1", "-p", str(port)]
    if weed:
        names = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
        ports = [f"-{name}={number}" for name, number in zip(names, others, strict=False)]
        grpc = f"-s3.port.grpc={others[6]}"
        command = [weed, "server", "-s3", f"-s3.port={port}", grpc, "-ip=127.0.0.1", f"-dir={work}", *ports]
        command += ["-volume.max=100", "-master.volumeSizeLimitMB=64", "-s3.iam=false"]
    with (work / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "NO_PROXY": "127.0.0.1"})
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(process, port, work / "log")
        yield S3Server(process, url)
    finally:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"the S3 server did not start: {log.read_text()[-2000:]}")


def s3_variables(url: str) -> dict[str, str]:
    """Returns the variables by which every library finds the server."""
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
    return {**keys, "AWS_ENDPOINT_URL": url, "NO_PROXY": "127.0.0.1"}


def s3_options(url: str) -> dict[str, Any]:
    return {"key": "key", "secret": "secret", "endpoint_url": url}
