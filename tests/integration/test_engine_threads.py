"""The processor time that a transfer takes from other programs: real libtorrent, threads and
child."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole
from torrentdist.swarm.engine.engine import Engine, EngineConfig
from torrentdist.testing.sample_trees import some_bytes, write_tree


def nice_here() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a priority of their own on Linux")
def test_what_moves_the_bytes_gives_way_to_jobs_and_to_our_own_loop(tmp_path: Path) -> None:
    """If this failed, a transfer would slow the jobs of its host, or our own event loop would have
    the lowest priority too."""
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    least = ours + 7
    write_tree(tmp_path / "a" / "content", {"large.bin": some_bytes(8 * 1024 * 1024, 5)})
    meta = make_metafile(tmp_path / "a" / "content")
    before = set(os.listdir("/proc/self/task"))

    async def scenario() -> tuple[int, int, list[int]]:
        a, b = Engine(EngineConfig(nice=7)), Engine(EngineConfig(nice=7))
        await a.start()
        await b.start()
        a.seed(meta, tmp_path / "a")
        peer = PeerAddress(host="127.0.0.1", port=a.port, role=PeerRole.MASTER)
        async with asyncio.timeout(20):
            await b.fetch(meta, tmp_path / "b", [peer]).wait_done()
        thread = await asyncio.to_thread(nice_here)
        child = await asyncio.create_subprocess_exec("nice", stdout=subprocess.PIPE)
        told, _ = await child.communicate()
        begun = [int(thread) for thread in set(os.listdir("/proc/self/task")) - before]
        found = [os.getpriority(os.PRIO_PROCESS, thread) for thread in begun]
        await a.close()
        await b.close()
        return thread, int(told), found

    thread, told, found = asyncio.run(scenario())

    assert found.count(least) >= 6, found  # network and disk of two sessions
    assert set(found) <= {ours, least}
    assert (ours, ours, ours) == (nice_here(), thread, told)
