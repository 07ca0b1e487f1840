"""What every test of the plug-in `fs` on HDFS begins with: a directory of HDFS that belongs to a
user, and the contract of plug-ins on it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import pytest
from engines.hadoop import Hadoop

from torrentdist.testing import CodeDistributorConformance, PluginHosts

PLUGIN = "torrentdist.distributor.fs:FsCodeDistributor"
USER = "etl"
"""No superuser of HDFS: permissions and quotas apply to it."""
STALL_SECS = 10.0
"""A busy machine makes a DataNode's first answers slow."""


def make_place(hadoop: Hadoop) -> str:
    """Makes a directory of HDFS that belongs to USER."""
    path = f"/bundles-{secrets.token_hex(4)}"
    hadoop.admin("MKDIRS", path)
    hadoop.admin("SETOWNER", path, owner=USER)
    return path


def options_of(web: str, place: str) -> Mapping[str, Any]:
    """Returns the plug-in's options. `web`: host and port of what answers WebHDFS."""
    return {"url": f"webhdfs://{web}{place}", "storage_options": {"user": USER}, "stall_secs": STALL_SECS}


class HdfsContract(CodeDistributorConformance):
    """The contract, by WebHDFS. A subclass has the fixture `web`."""

    plugin = PLUGIN

    @pytest.fixture
    def place(self, hadoop: Hadoop) -> str:
        return make_place(hadoop)

    @pytest.fixture(autouse=True)
    def _reached(self, hadoop: Hadoop, place: str) -> None:
        self._hadoop, self._top = hadoop, place

    @pytest.fixture
    def options(self, web: str, place: str) -> Mapping[str, Any]:
        return options_of(web, place)

    def break_sources(self, trio: PluginHosts, options: Mapping[str, Any]) -> None:
        self._hadoop.admin("SETPERMISSION", self._top, permission="000")

    def mend_sources(self, trio: PluginHosts, options: Mapping[str, Any]) -> None:
        self._hadoop.admin("SETPERMISSION", self._top, permission="755")
