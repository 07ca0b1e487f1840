"""Daemons that ZooKeeper refuses for a wrong or missing zookeeper.auth_file: they wait, quietly."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import anyio
import pytest
from cluster_fixtures import Cluster, NewCluster, throughout, until
from zookeeper_fixtures import Connect, write_auth

from torrentdist.cluster import paths
from torrentdist.cluster.session.zookeeper_session import SessionState, ZooKeeper
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.log import show_lines
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import SupervisorId
from torrentdist.supervisor.place.znode_watch import ZnodeWatch

pytestmark = pytest.mark.case("G9")
WATCHED_SECS = 4.0


def processor_secs(cluster: Cluster, name: str) -> float:
    fields = Path(f"/proc/{cluster.dev.member(name).pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.alone
def test_a_refused_daemon_is_quiet_and_says_why(new_cluster: NewCluster, tmp_path: Path) -> None:
    """If this fails, a daemon with the wrong secret writes 1,600 lines a second and takes a whole
    processor."""
    right = write_auth(tmp_path / "right", "td:secret")
    cluster = new_cluster({"zookeeper": {"auth_file": right}}, masters=1, supervisors=1)
    given = {"supervisor-1": "", "master-1": write_auth(tmp_path / "given", "td:wrong")}
    names = list(given)
    for name in names:
        cluster.reconfigure(name, {"zookeeper": {"auth_file": given[name]}})

    def lines(name: str) -> list[str]:
        log = (cluster.dir / f"{name}.log").read_text().splitlines()
        return [line for line in log if "waiting for ZooKeeper" in line]

    until(lambda: all(lines(name) for name in names), "they say that they are refused")
    before = {name: processor_secs(cluster, name) for name in names}
    quiet = throughout(lambda: all(len(lines(name)) == 1 for name in names), WATCHED_SECS)
    used = {name: processor_secs(cluster, name) - before[name] for name in names}

    assert quiet
    assert all("zookeeper.auth_file" in lines(name)[0] for name in names)
    assert max(used.values()) < WATCHED_SECS / 4


@pytest.mark.anyio
async def test_loops_of_a_refused_session_pause(
    zookeeper: EmbeddedZooKeeper, chroot: str, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, a supervisor whose rights are taken away while it runs says so over and
    over."""
    owner = await connect(auth_file=write_auth(tmp_path / "auth", "td:secret"))
    for path in (paths.MASTERS, paths.SUPERVISORS, paths.ASSIGNMENTS):
        await owner.ensure(path)
    stranger = ZooKeeper(ZooKeeperConfig(servers=list(zookeeper.addresses), chroot=chroot))
    await stranger.start(10.0)
    with pytest.raises(TorrentdistError, match="refuses"):
        await stranger.children(paths.ASSIGNMENTS)
    assert stranger.state is SessionState.CONNECTED
    znode_watch = ZnodeWatch(stranger, SupervisorId("s"))
    events: list[str] = []
    monkeypatch.setattr("torrentdist.log._shown", None)
    show_lines(lambda level, event, fields: events.append(event), logging.INFO)
    async with anyio.create_task_group() as group:
        group.start_soon(znode_watch.run)
        with anyio.move_on_after(2.0):
            await asyncio.Event().wait()
        group.cancel_scope.cancel()
    await znode_watch.close()
    await stranger.close()

    assert "the mirror waits for ZooKeeper" in events
    assert len(events) == len(set(events))
