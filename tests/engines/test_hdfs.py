"""FsCodeDistributor on a real HDFS over WebHDFS, by fsspec's own client."""

from __future__ import annotations

import time
import urllib.error
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from engines.engine_hosts import EngineLab
from engines.hadoop import Hadoop
from engines.hdfs_contract import PLUGIN, STALL_SECS, USER, HdfsContract, make_place, options_of

from bench.lab.namespaces import wait_until
from torrentdist.model.errors import TorrentdistError
from torrentdist.testing import PluginHosts
from torrentdist.testing.loopback_hosts import LoopbackHosts
from torrentdist.testing.sample_trees import NESTED, SMALL


@pytest.fixture
def place(hadoop: Hadoop) -> str:
    return make_place(hadoop)


@pytest.fixture
def options(hadoop: Hadoop, place: str) -> Mapping[str, Any]:
    return options_of(hadoop.web, place)


@pytest.fixture
def trio(tmp_path: Path, options: Mapping[str, Any]) -> Iterator[PluginHosts]:
    with LoopbackHosts(tmp_path / "hosts") as hosts:
        trio = PluginHosts(hosts, PLUGIN, options, 60.0)
        yield trio
        for each in trio:
            each.plugin.close()


class TestFsCodeDistributorOnHdfs(HdfsContract):
    @pytest.fixture
    def web(self, hadoop: Hadoop) -> str:
        return hadoop.web


def refused(act: Any, *arguments: Any) -> str:
    """Returns the message of the error that the plug-in raises."""
    with pytest.raises(TorrentdistError) as failure:
        act(*arguments)
    assert failure.value.code == "bundle_unavailable"
    return str(failure.value)


def test_a_killed_datanode_loses_nothing(engine_lab: EngineLab, hadoop: Hadoop, trio: PluginHosts) -> None:
    """HDFS keeps three copies; if this fails, the plug-in doesn't get at the others. It takes long:
    the NameNode needs ten seconds to miss a DataNode."""
    first, *_ = hadoop.workers
    metafile = trio.a.offer("etl-42", NESTED)
    engine_lab.end(f"datanode-{first.name}")
    try:
        wait_until(lambda: first.name not in hadoop.live_datanodes(), "HDFS to miss the DataNode")

        assert NESTED == trio.b.download("etl-42", metafile)
        assert SMALL == trio.c.download("etl-43", trio.a.offer("etl-43", SMALL))
    finally:
        hadoop.start_daemon("datanode", first)
        wait_until(lambda: first.name in hadoop.live_datanodes(), "the DataNode")


def test_a_silent_datanode_is_an_error_in_time(engine_lab: EngineLab, hadoop: Hadoop, trio: PluginHosts) -> None:
    """fsspec's client waits for ever. If this fails, a fetch hangs with a thread of the daemon."""
    metafile = trio.a.offer("etl-42", SMALL)
    names = [f"datanode-{host.name}" for host in hadoop.workers]
    for name in names:
        engine_lab.pause(name)
    began = time.monotonic()
    try:
        failure = trio.b.failure("etl-42", metafile)
    finally:
        for name in names:
            engine_lab.resume(name)

    assert isinstance(failure, TorrentdistError)
    assert failure.code == "bundle_unavailable"
    assert time.monotonic() - began < 5 * STALL_SECS
    wait_until(lambda: len(hadoop.live_datanodes()) == len(names), "the DataNodes")
    assert SMALL == trio.b.download("etl-42", metafile)


def test_safe_mode_reads_and_says_why_it_writes_nothing(hadoop: Hadoop, trio: PluginHosts) -> None:
    """If this fails, an upload during HDFS's maintenance succeeds without its bytes, or names
    another reason. It takes long: `dfsadmin` is a Java program."""
    metafile = trio.a.offer("etl-42", SMALL)
    hadoop.dfsadmin("-safemode", "enter")
    try:
        assert SMALL == trio.b.download("etl-42", metafile)
        assert "safe mode" in refused(trio.a.offer, "etl-43", NESTED).lower()
    finally:
        hadoop.dfsadmin("-safemode", "leave")

    assert NESTED == trio.b.download("etl-43", trio.a.offer("etl-43", NESTED))


def test_a_restarted_namenode_has_everything(engine_lab: EngineLab, hadoop: Hadoop, trio: PluginHosts) -> None:
    """If this fails, a fetch during a restart of the NameNode claims success, or a bundle is gone
    after it. It takes long: a NameNode starts."""
    metafile = trio.a.offer("etl-42", NESTED)
    engine_lab.end(f"namenode-{hadoop.head.name}")
    assert "refused" in str(trio.b.failure("etl-42", metafile)).lower()
    hadoop.start_namenode()
    wait_until(lambda: not hadoop.is_safe() and len(hadoop.live_datanodes()) == 3, "the end of safe mode", 120)
    assert NESTED == trio.b.download("etl-42", metafile)
    assert NESTED == trio.b.download("etl-43", trio.a.offer("etl-43", NESTED))


def test_a_reached_quota_is_named_and_nothing_half_is_left(hadoop: Hadoop, place: str, trio: PluginHosts) -> None:
    """If this fails, an upload beyond the quota looks complete to other hosts, or its error says
    nothing of a quota."""
    hadoop.admin("SETQUOTA", place, namespacequota="5")

    assert "quota" in refused(trio.a.offer, "etl-42", NESTED).lower()
    assert trio.b.plugin.get_replication_count("etl-42") == 0
    hadoop.admin("SETQUOTA", place, namespacequota="1000")
    assert NESTED == trio.b.download("etl-42", trio.a.offer("etl-42", NESTED))


def test_a_refused_permission_is_named(hadoop: Hadoop, place: str, trio: PluginHosts) -> None:
    """If this fails, an operator who forgot `chown` reads of a missing bundle."""
    hadoop.admin("SETOWNER", place, owner="somebody")
    hadoop.admin("SETPERMISSION", place, permission="555")

    assert "permission denied" in refused(trio.a.offer, "etl-42", SMALL).lower()
    with pytest.raises(urllib.error.HTTPError):
        hadoop.admin("MKDIRS", f"{place}/etl-42", user=USER)
