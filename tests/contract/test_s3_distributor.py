"""FsCodeDistributor keeps what the contract of plug-ins asks of the storage on a real S3 endpoint.

The endpoint is a process of its own: SeaweedFS where `weed` is on the PATH, else moto's server.
"""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator, Mapping
from typing import Any

import fsspec
import pytest
from s3_servers import S3Server, s3_options, s3_server

from torrentdist.testing import CodeDistributorConformance, PluginHosts


def storage_options(server: S3Server) -> dict[str, Any]:
    timeouts = {"connect_timeout": 10, "read_timeout": 10, "retries": {"max_attempts": 0}}
    return {**s3_options(server.url), "config_kwargs": timeouts}


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


class TestFsCodeDistributorOnS3(CodeDistributorConformance):
    plugin = "torrentdist.distributor.fs:FsCodeDistributor"

    @pytest.fixture
    def options(self, endpoint: S3Server) -> Mapping[str, Any]:
        # One bucket for all: SeaweedFS gives each bucket volumes of its own, which run out.
        if not (storage := fsspec.filesystem("s3", **storage_options(endpoint))).exists("bundles"):
            storage.mkdir("bundles")
        options = {"url": f"s3://bundles/{secrets.token_hex(6)}/prefix", "storage_options": storage_options(endpoint)}
        return {**options, "stall_secs": 30.0}

    @pytest.fixture(autouse=True)
    def server(self, endpoint: S3Server) -> Iterator[None]:
        self._process = endpoint.process
        yield
        self._process.send_signal(signal.SIGCONT)

    def break_sources(self, trio: PluginHosts, options: Mapping[str, Any]) -> None:
        """Makes the storage accept connections and answer nothing, which is worse than being
        away."""
        self._process.send_signal(signal.SIGSTOP)

    def mend_sources(self, trio: PluginHosts, options: Mapping[str, Any]) -> None:
        self._process.send_signal(signal.SIGCONT)


# What happens on a host alone is shown where the storage is a directory (test_fs_distributor.py).
for name in (
    "test_the_files_are_returned",
    "test_the_metafile_is_the_plugins_own",
    "test_a_download_serves_the_next_one",
    "test_downloading_again_changes_nothing",
    "test_the_replication_count_follows_the_holders",
    "test_a_metafile_of_something_else_is_a_failure",
    "test_a_destination_that_is_filled_already_is_completed",
    "test_a_complete_destination_stays",
):
    setattr(TestFsCodeDistributorOnS3, name, None)
