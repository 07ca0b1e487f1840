"""Forks of a process that has a ZooKeeper session, an elector and a BitTorrent engine, as PySpark
and multiprocessing make them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper

LONGEST_SECS = 60.0

PROGRAM = '''
import asyncio, gc, logging, multiprocessing, os, sys, time, warnings
from torrentdist.cluster.election.elector import Elector
from torrentdist.cluster.session.founding import found_cluster
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.ids import MasterId
from torrentdist.swarm.engine.engine import Engine
from torrentdist.swarm.engine.session_settings import EngineConfig

async def inner():
    await asyncio.sleep(0.01)

def work(how):
    """What a worker does before it goes, by one way or another."""
    gc.collect()
    logging.warning("in the child")
    asyncio.run(inner())
    if how == "exit":
        sys.exit(0)

async def until(condition, what):
    end = time.monotonic() + 15
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"not in time: {what}")
        await asyncio.sleep(0.02)

async def main(servers, chroot):
    zk = ZooKeeper(ZooKeeperConfig(servers=[servers], chroot=chroot, session_timeout_secs=4.0))
    await zk.start(10)
    await found_cluster(zk)
    engine = Engine(EngineConfig(listen_host="127.0.0.1"))
    await engine.start()
    elector = Elector(zk, MasterId("m1"), lambda: asyncio.sleep(0, True))
    await elector.queue_up()
    await until(elector.is_leader, "leading")
    session, epoch = zk.session_id, elector.fence().epoch
    for how in ("fork", "multiprocessing", "exit") * 3:
        if how == "fork":
            pid = os.fork()
            if pid == 0:
                work(how)
                os._exit(0)
            done = []
            def ended(pid=pid, done=done):
                if not done:
                    found, status = os.waitpid(pid, os.WNOHANG)
                    done.extend([status] if found else [])
                return done
            await until(ended, "the child's end")
            assert done == [0], done
        else:
            child = multiprocessing.get_context("fork").Process(target=work, args=(how,))
            child.start()
            await until(lambda: not child.is_alive(), "the child's end")
            assert child.exitcode == 0, child.exitcode
        stat = await zk.exists("/epoch")
        assert stat is not None
    assert (zk.session_id, zk.generation) == (session, 1), "the session was disturbed"
    assert elector.is_leader() and elector.fence().epoch == epoch, "the leadership was disturbed"
    await elector.leave_queue()
    await engine.close()
    await zk.close()
    print("undisturbed")

asyncio.run(main(sys.argv[1], sys.argv[2]))
'''


@pytest.mark.case("D15")
def test_a_fork_neither_hangs_nor_disturbs(zookeeper: EmbeddedZooKeeper, chroot: str) -> None:
    """If this fails, a worker that PySpark forks from a process with a session hangs, or ends that
    session."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, zookeeper.addresses[0], chroot],
        capture_output=True, text=True, timeout=LONGEST_SECS, check=False,
    )  # fmt: skip

    assert (0, True) == (done.returncode, "undisturbed" in done.stdout), done.stderr[-3000:]
