"""ZooKeeper is away from all daemons for longer than a session: no daemon acts, and nothing that
runs stops."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from cluster_fixtures import Cluster, make_source, part_bytes, picture, throughout, until
from patience import patient

MIB = 1024 * 1024


@pytest.mark.case("D10")
def test_an_outage_that_everybody_sees_changes_nobodys_role_for_the_worse(battered: Cluster, tmp_path: Path) -> None:
    """If this fails, an outage of ZooKeeper stops work that could continue or hangs a command, or
    daemons and bundles are gone after it. It takes long: a bundle comes slowly, and many commands
    run."""
    source, other = make_source(tmp_path / "source", 530, 6 * MIB), make_source(tmp_path / "other", 540, 1000)
    digest = battered.upload(source, "outage")["digest"]
    battered.run("bundle", "distribute", "outage", "--wait", "100%").ok()
    members = (*battered.masters(), *battered.supervisors())
    pids = {name: battered.dev.member(name).pid for name in members}
    battered.leader()
    session = battered.dev.spec.session_secs
    downloading = battered.begin(
        "download", "outage", tmp_path / "from-masters", "--no-supervisor", swarm__download_limit=2 * MIB
    )
    until(lambda: part_bytes(tmp_path) > MIB, "something has arrived")

    battered.dev.signal("zookeeper-1", signal.SIGSTOP)
    stopped = time.monotonic()
    changes = [
        battered.begin(*change, client__deadline_secs=4)
        for change in (("upload", other, "--id", "after-outage"), ("bundle", "pin", "outage"))
    ]
    until(lambda: not any(battered.status(m, "/leaderz") == 200 for m in battered.masters()), "nobody leads", session)
    from_masters = downloading.end()
    from_host = battered.run("download", "outage", tmp_path / "from-host")
    refused = [change.end() for change in changes]
    silent = throughout(
        lambda: not any(battered.status(m, "/leaderz") == 200 for m in battered.masters()),
        max(0.0, stopped + 1.5 * session - time.monotonic()),
    )
    battered.dev.signal("zookeeper-1", signal.SIGCONT)
    until(lambda: all(battered.status(name, "/readyz") == 200 for name in members), "everybody is ready again", 30.0)
    leader = battered.leader()
    until(lambda: len(battered.holders("outage", at=leader)) == 3, "everybody holds it again", 30.0)
    after = battered.upload(other, "after-outage")

    assert (from_masters.code, from_host.code) == (0, 0), (from_masters.stderr, from_host.stderr)
    assert picture(source) == picture(tmp_path / "from-masters") == picture(tmp_path / "from-host")
    assert [5, 5] == [ran.code for ran in refused]
    assert all(ran.seconds < patient(10) for ran in refused)
    assert silent, "somebody led without ZooKeeper"
    assert pids == {name: battered.dev.member(name).pid for name in members if battered.alive(name)}
    assert all(battered.published(name, digest) for name in members)
    assert after["achieved"]
