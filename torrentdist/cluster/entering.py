"""A daemon's first step: a session with ZooKeeper, however long that takes, and a tree that this release can read.

Must not do: write, or give up on an ensemble that does not answer yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from torrentdist.cluster import paths
from torrentdist.cluster.zookeeper import ZooKeeper
from torrentdist.model.backoff import Retry
from torrentdist.model.errors import EXIT_UNAVAILABLE, TorrentdistError
from torrentdist.model.records import ClusterRecord, decode

log = structlog.get_logger(__name__)

CONNECT_SECS = 30.0
FIRST_PAUSE_SECS = 0.5
LONGEST_PAUSE_SECS = 15.0
T = TypeVar("T")


async def answered(zk: ZooKeeper, work: Callable[[], Awaitable[T]]) -> T:
    """What `work` returns; it is tried again for as long as ZooKeeper does not answer."""
    again = Retry(FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS)
    while True:
        try:
            return await work()
        except TorrentdistError as error:
            if error.exit_code != EXIT_UNAVAILABLE:
                raise
            await _wait(zk, again, error)


async def enter(zk: ZooKeeper) -> None:
    """Return once connected; `later_release` if the cluster's records are of a schema that this release cannot read."""
    again = Retry(FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS)
    while True:
        try:
            await zk.start(CONNECT_SECS)
            found = await zk.get(paths.CLUSTER)
        except TorrentdistError as error:
            await _wait(zk, again, error)
            continue
        if found is not None:
            _require_readable(found[0])
        return


async def _wait(zk: ZooKeeper, again: Retry, error: TorrentdistError) -> None:
    if again.failed(error.code):
        log.warning("waiting for ZooKeeper", detail=error.message, hint=error.hint)
    await zk.pause(again.pause_secs)


def _require_readable(data: bytes) -> None:
    try:
        decode(data, ClusterRecord, path=paths.CLUSTER)
    except TorrentdistError as error:
        if error.code == "later_release":
            raise
        log.error("the cluster's record is damaged", reason=error.message)
