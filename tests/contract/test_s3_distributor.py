"""FsCodeDistributor keeps the contract of plug-ins on a real S3 endpoint: moto's server in a
process of its own."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import fsspec
import pytest

from torrentdist.testing import CodeDistributorConformance, PluginHosts

START_SECS = 60.0
MOTO = "from moto.server import main; import sys; main(sys.argv[1:])"


class S3Endpoint(NamedTuple):
    process: subprocess.Popen[bytes]
    url: str

    def storage_options(self) -> dict[str, Any]:
        timeouts = {"connect_timeout": 10, "read_timeout": 10, "retries": {"max_attempts": 0}}
        return {"key": "key", "secret": "secret", "endpoint_url": self.url, "config_kwargs": timeouts}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[S3Endpoint]:
    port = _free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", MOTO, "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "NO_PROXY": "127.0.0.1"},
    )
    try:
        _wait_for_port(process, port)
        yield S3Endpoint(process, f"http://127.0.0.1:{port}")
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for_port(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError("moto's server did not start")


class TestFsCodeDistributorOnS3(CodeDistributorConformance):
    plugin = "torrentdist.distributor.fs:FsCodeDistributor"

    @pytest.fixture
    def options(self, endpoint: S3Endpoint) -> Mapping[str, Any]:
        bucket = f"bundles-{secrets.token_hex(6)}"
        fsspec.filesystem("s3", **endpoint.storage_options()).mkdir(bucket)
        options = {"url": f"s3://{bucket}/some/prefix", "storage_options": endpoint.storage_options()}
        return {**options, "stall_secs": 30.0}

    @pytest.fixture(autouse=True)
    def server(self, endpoint: S3Endpoint) -> Iterator[None]:
        self._process = endpoint.process
        yield
        self._process.send_signal(signal.SIGCONT)

    def break_sources(self, trio: PluginHosts, options: Mapping[str, Any]) -> None:
        """Makes the storage accept connections and answer nothing, which is worse than being
        away."""
        self._process.send_signal(signal.SIGSTOP)

    def mend_sources(self, trio: PluginHosts, options: Mapping[str, Any]) -> None:
        self._process.send_signal(signal.SIGCONT)
