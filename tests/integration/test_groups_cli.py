"""`torrentdist group` on a real ZooKeeper."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from torrentdist.cluster.session.founding import found_at
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.model.configuration.config import ZooKeeperConfig

Ended = tuple[int, str, str]
Run = Callable[..., Ended]


@pytest.fixture
def run(zookeeper: EmbeddedZooKeeper, chroot: str, tmp_path: Path) -> Run:
    config = ZooKeeperConfig(servers=zookeeper.addresses, chroot=chroot)
    asyncio.run(found_at(config, 10.0))
    file = tmp_path / "client.toml"
    file.write_text(f'[zookeeper]\nservers = {json.dumps(zookeeper.addresses)}\nchroot = "{chroot}"\n')

    def command(*args: str) -> Ended:
        return group(file, *args)

    return command


def group(file: Path, *args: str) -> Ended:
    """Runs the command as a process, because it configures logs for itself."""
    command = [sys.executable, "-m", "torrentdist_cli", "group", *args, "--config", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return ended.returncode, ended.stdout, ended.stderr


def test_resources_are_added_seen_and_removed(run: Run) -> None:
    """If this fails, an administrator cannot tell a group its resources, or is shown other ones."""
    added = run("add", "ingest", "queue-1", "queue-2", "-q")
    again = run("add", "ingest", "queue-2", "queue-3", "-o", "json")
    removed = run("rm", "ingest", "queue-1")
    shown = run("show", "ingest", "-o", "json")
    listed = run("ls", "-o", "json")

    assert (0, "queue-1\nqueue-2\n") == added[:2]
    assert {"group": "ingest", "changed": ["queue-3"]} == json.loads(again[1])
    assert (0, "removed 1 in ingest\n") == removed[:2]
    assert ["queue-2", "queue-3"] == json.loads(shown[1])["resources"] == json.loads(shown[1])["unassigned"]
    assert [{"group": "ingest", "algorithm": None, "members": 0, "resources": 2}] == json.loads(listed[1])


def test_tables_are_for_people(run: Run) -> None:
    """If this fails, tables and JSON disagree."""
    run("add", "ingest", "queue-1")

    assert "queue-1" in run("show", "ingest")[1]
    assert "ingest" in run("ls")[1]


def test_what_is_not_there_is_exit_3(run: Run) -> None:
    """If this fails, a script does not notice a typing error in the name of a group or a
    resource."""
    run("add", "ingest", "queue-1")

    assert 3 == run("show", "other")[0]
    assert 3 == run("rm", "ingest", "queue-2")[0]
    assert 2 == run("add", "ingest", "../epoch")[0]


def test_without_a_zookeeper_it_is_exit_5(tmp_path: Path) -> None:
    """If this fails, the command hangs without ZooKeeper, or ends like an internal error."""
    file = tmp_path / "client.toml"
    file.write_text('[zookeeper]\nservers = ["127.0.0.1:1"]\nsession_timeout_secs = 1.0\n')

    code, out, err = group(file, "ls")

    assert (5, "") == (code, out)
    assert err.startswith("error[zookeeper_unavailable]")
