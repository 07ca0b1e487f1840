"""A daemon's first steps in ZooKeeper: get a session, check that this release can read the tree,
and find a cluster in it.

Always: each step waits as long as necessary.
Never: write, or give up on an ensemble that does not answer yet.
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from torrentdist.cluster import paths
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.log import get_logger
from torrentdist.model.backoff import Retry
from torrentdist.model.errors import EXIT_UNAVAILABLE, TorrentdistError
from torrentdist.model.records import ClusterRecord, decode

log = get_logger()

FIRST_LOOK_SECS = 1.0
"""How long a daemon that has just started may need to see the cluster."""
CONNECT_SECS = 30.0
FIRST_PAUSE_SECS = 0.5
LONGEST_PAUSE_SECS = 15.0
T = TypeVar("T")


async def answered(zk: ZooKeeper, work: Callable[[], Awaitable[T]]) -> T:
    """Returns the result of `work`. Repeats it for as long as ZooKeeper does not answer."""
    again = Retry(FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS)
    while True:
        try:
            return await work()
        except TorrentdistError as error:
            if error.exit_code != EXIT_UNAVAILABLE:
                raise
            await _wait(zk, again, error)


async def enter(zk: ZooKeeper) -> None:
    """Waits for the connection, whether or not there is a cluster.

    Raises `later_release` if this release cannot read the schema of the records.
    """
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


def lacks_cluster(mirror: Mirror) -> bool:
    """Whether ZooKeeper has confirmed that the tree holds no cluster. False while that is
    unknown."""
    return mirror.fresh and not mirror.snapshot.present


async def until_founded(mirror: Mirror) -> None:
    """Waits until the tree holds a cluster. Only `ha init` and `ha restore` create one."""
    with contextlib.suppress(TorrentdistError):
        await mirror.wait_for(lambda snapshot: snapshot.present, FIRST_LOOK_SECS)
        return
    log.warning("waiting for a cluster: `torrentdist ha init` founds one, `ha restore` brings one back")
    snapshot = mirror.snapshot
    while not snapshot.present:
        snapshot = await mirror.changed(snapshot.version)


def _require_readable(data: bytes) -> None:
    try:
        decode(data, ClusterRecord, path=paths.CLUSTER)
    except TorrentdistError as error:
        if error.code == "later_release":
            raise
        log.error("the cluster's record is damaged", reason=error.message)
