"""Deletes ZooKeeper's tree under running daemons and restores it from a backup, as after an
operator's mistake.

Always: no client works from the backup to the end of the restore. What was acknowledged in between
would be lost with good reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence

from chaos.oracle import CHROOT
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from torrentdist.cluster import paths
from torrentdist.cluster.records.tree_backup import make_backup, restore
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.model.backup import Backup
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.errors import EXIT_UNAVAILABLE, TorrentdistError

SILENCE_SECS = 45.0
REACH_SECS = 30.0
AGAIN_SECS = 0.2


class OutOfReach(Exception):
    """Other faults make this fault impossible now."""


class Hush:
    """Lets a test ask all workers to wait."""

    def __init__(self) -> None:
        self._welcome, self._idle = asyncio.Event(), asyncio.Event()
        self._welcome.set()
        self._idle.set()
        self._working = 0

    @contextlib.asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        await self._welcome.wait()
        self._working += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._working -= 1
            if not self._working:
                self._idle.set()

    @contextlib.asynccontextmanager
    async def silence(self) -> AsyncIterator[None]:
        """Begins when all work that was under way has ended."""
        self._welcome.clear()
        try:
            try:
                await asyncio.wait_for(self._idle.wait(), SILENCE_SECS)
            except TimeoutError:
                raise OutOfReach from None
            yield
        finally:
            self._welcome.set()


async def forget(servers: Sequence[str], hush: Hush, secs: float, outsiders: set[int]) -> None:
    """`outsiders`: collects the sessions that delete and restore, for the judge of the
    transactions. Once anything is deleted, the backup is restored, whatever it takes."""
    zk = ZooKeeper(ZooKeeperConfig(servers=list(servers), operation_timeout_secs=5.0))
    zk.on_state.append(lambda _: outsiders.add(zk.session_id or 0))
    async with hush.silence():
        try:
            backup = await _reach(zk)
            await asyncio.to_thread(_delete, ",".join(servers), outsiders)
            await asyncio.sleep(secs)
            await _restore(zk, backup)
        finally:
            await zk.close()


async def _reach(zk: ZooKeeper) -> Backup:
    try:
        await zk.start(REACH_SECS)
        return await make_backup(zk)
    except TorrentdistError as error:
        if error.exit_code == EXIT_UNAVAILABLE:
            raise OutOfReach from None
        raise


def _delete(hosts: str, outsiders: set[int]) -> None:
    """Deletes the tree. Daemons write into it meanwhile, so it repeats until the tree stays empty
    for a moment."""
    client = KazooClient(hosts=hosts, timeout=10.0)
    deadline = time.monotonic() + 3 * REACH_SECS
    try:
        client.start(REACH_SECS)
        while True:
            outsiders.update((client.client_id or ())[:1])  # between two sessions there is no id
            try:
                client.delete(CHROOT, recursive=True)
                return
            except KazooException:
                if time.monotonic() > deadline:
                    raise  # a part of the tree is gone for good: the run is spoilt and says so
                time.sleep(AGAIN_SECS)
    except KazooTimeoutError:
        raise OutOfReach from None
    finally:
        client.stop()
        client.close()


async def _restore(zk: ZooKeeper, backup: Backup) -> None:
    deadline = time.monotonic() + 3 * REACH_SECS
    again = False
    while True:
        try:
            await zk.wait_connected(REACH_SECS)
            await restore(zk, backup)
            return
        except TorrentdistError as error:
            if again and error.code == "tree_not_empty" and paths.CLUSTER in error.message:
                return  # the answer to the last transaction was lost
            again = True
            if error.exit_code != EXIT_UNAVAILABLE or time.monotonic() > deadline:
                raise
            await asyncio.sleep(AGAIN_SECS)
