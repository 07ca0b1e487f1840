"""ZooKeeper is away from all daemons for longer than a session: no daemon acts, and nothing that
runs stops."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, picture, throughout, until


def made(path: Path, size: int) -> Path:
    path.mkdir()
    (path / "code.bin").write_bytes(bytes(n % 251 for n in range(size)))
    return path


@pytest.mark.case("D10")
def test_an_outage_that_everybody_sees_changes_nobodys_role_for_the_worse(battered: Cluster, tmp_path: Path) -> None:
    """If this fails, an outage of ZooKeeper stops work that could continue, or daemons and bundles
    are gone after it."""
    source = made(tmp_path / "source", 300_000)
    digest = battered.upload(source, "outage")["digest"]
    battered.run("bundle", "distribute", "outage", "--wait", "100%").ok()
    members = (*battered.masters(), *battered.supervisors())
    pids = {name: battered.dev.member(name).pid for name in members}
    battered.leader()
    session = battered.dev.spec.session_secs

    battered.dev.signal("zookeeper-1", signal.SIGSTOP)
    stopped = time.monotonic()
    until(lambda: not any(battered.status(m, "/leaderz") == 200 for m in battered.masters()), "nobody leads", session)
    from_masters = battered.run("download", "outage", tmp_path / "from-masters", "--no-supervisor")
    from_host = battered.run("download", "outage", tmp_path / "from-host")
    silent = throughout(
        lambda: not any(battered.status(m, "/leaderz") == 200 for m in battered.masters()),
        max(0.0, stopped + 1.5 * session - time.monotonic()),
    )
    battered.dev.signal("zookeeper-1", signal.SIGCONT)
    until(lambda: all(battered.status(name, "/readyz") == 200 for name in members), "everybody is ready again", 30.0)
    leader = battered.leader()
    until(lambda: len(battered.holders("outage", at=leader)) == 3, "everybody holds it again", 30.0)
    after = battered.upload(made(tmp_path / "after", 1000), "after-outage")

    assert (from_masters.code, from_host.code) == (0, 0), (from_masters.stderr, from_host.stderr)
    assert picture(source) == picture(tmp_path / "from-masters") == picture(tmp_path / "from-host")
    assert silent, "somebody led without ZooKeeper"
    assert pids == {name: battered.dev.member(name).pid for name in members if battered.alive(name)}
    assert all(battered.published(name, digest) for name in members)
    assert after["achieved"]
