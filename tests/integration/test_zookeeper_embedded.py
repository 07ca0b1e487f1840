"""The embedded ZooKeeper that development clusters and these tests run on."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest
from zookeeper_fixtures import eventually

from torrentdist.cluster.session.founding import found_cluster
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.dev import embedded_zookeeper as embedded
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper, find_classpath, find_java
from torrentdist.host.process.listening_sockets import free_ports
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.errors import TorrentdistError


@pytest.mark.anyio
async def test_an_ensemble_outlives_its_leader(tmp_path: Path, chroot: str) -> None:
    """If this fails, three servers are no better than one."""
    ensemble = EmbeddedZooKeeper(tmp_path / "zk", servers=3)
    ensemble.start()
    zk = ZooKeeper(ZooKeeperConfig(servers=ensemble.addresses, chroot=chroot, session_timeout_secs=4.0))
    try:
        await zk.start(10.0)
        await found_cluster(zk)
        await zk.create("/before")
        leader = next(s for s in ensemble.servers if "Mode: leader" in s.command("srvr"))
        leader.kill()
        await eventually(lambda: sum(s.serves() for s in ensemble.servers) == 2)
        assert await zk.exists("/before") is not None  # It may still have been connected to a dead server.
        await zk.create("/after")
        found = await zk.children("/")
        await zk.close()
    finally:
        ensemble.kill()

    assert {"after", "before"} <= set(found or [])
    assert ensemble.pids == []


def test_data_outlives_a_stop_and_the_process_group_is_its_own(tmp_path: Path) -> None:
    """If this fails, `dev down` and `dev up` lose the cluster, or Ctrl-C in the terminal kills a
    detached one."""
    zookeeper = EmbeddedZooKeeper(tmp_path / "zk")
    zookeeper.start()
    server = zookeeper.servers[0]
    pid = server.pid or 0
    group = os.getpgid(pid)
    zookeeper.stop()
    kept = (server.directory / "data" / "version-2").exists()

    assert group == pid
    assert group != os.getpgid(0)
    assert kept
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIG_DFL)


def test_a_taken_port_is_a_clear_error(tmp_path: Path) -> None:
    """If this fails, a port in use shows as a ZooKeeper that does not come up."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        zookeeper = EmbeddedZooKeeper(tmp_path / "zk", ports=[taken.getsockname()[1]])
        with pytest.raises(TorrentdistError) as caught:
            zookeeper.start()

    assert caught.value.code == "port_in_use"
    assert zookeeper.pids == []


def test_a_missing_java_or_zookeeper_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If this fails, the user of `dev up` reads a traceback instead of what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("ZOOKEEPER_HOME", raising=False)
    for place in ("_pyspark_jars", "_debian_jars"):
        monkeypatch.setattr(embedded, place, list)
    codes = []
    for find in (find_java, find_classpath):
        with pytest.raises(TorrentdistError) as caught:
            find()
        codes.append(caught.value.code)

    assert codes == ["java_missing", "missing_dependency"]


def test_an_apache_installation_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If this fails, ZOOKEEPER_HOME does nothing."""
    (tmp_path / "lib").mkdir()
    jar = tmp_path / "lib" / "zookeeper-3.9.jar"
    jar.touch()
    monkeypatch.setenv("ZOOKEEPER_HOME", str(tmp_path))
    for place in ("_pyspark_jars", "_debian_jars"):
        monkeypatch.setattr(embedded, place, list)

    assert find_classpath() == str(jar)


@pytest.mark.parametrize(("servers", "ports"), [(2, []), (3, [1])])
def test_a_nonsensical_ensemble_is_refused(tmp_path: Path, servers: int, ports: list[int]) -> None:
    """If this fails, an ensemble that cannot have a majority is started."""
    with pytest.raises(TorrentdistError) as caught:
        EmbeddedZooKeeper(tmp_path, servers=servers, ports=ports)

    assert caught.value.code == "usage"


def test_free_ports_are_different() -> None:
    """If this fails, servers of an ensemble fight for a port."""
    assert len(set(free_ports(20))) == 20
