"""Requests and answers between the pure machines and ZooKeeper. Each machine has at most one
request in progress.

Always: a request is a value, so that a model of ZooKeeper can answer it like the real one.
Never: leave open what an answer proves. `Unsure` proves nothing: the request may have been
executed, or may still be.
"""

from collections.abc import Callable
from enum import StrEnum

import msgspec

from torrentdist.cluster.session.znode_operations import Op, Result, Stat, TransactionFailed, ZNodeError
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.log import get_logger
from torrentdist.model.backoff import Retry
from torrentdist.model.errors import TorrentdistError

log = get_logger()
FIRST_BREATH_SECS = 0.05
LONGEST_BREATH_SECS = 5.0


class Children(msgspec.Struct, frozen=True):
    path: str
    watch: bool = False
    fresh: bool = False
    """Whether the answer must include everything acknowledged to any client before."""


class Get(msgspec.Struct, frozen=True):
    path: str
    watch: bool = False


class Await(msgspec.Struct, frozen=True):
    """Reads a znode, and watches it whether or not it exists."""

    path: str


class Ensure(msgspec.Struct, frozen=True):
    paths: tuple[str, ...]


class Commit(msgspec.Struct, frozen=True):
    ops: tuple[Op, ...]


Request = Children | Get | Await | Ensure | Commit


class Names(msgspec.Struct, frozen=True):
    names: tuple[str, ...]


class Content(msgspec.Struct, frozen=True):
    data: bytes
    stat: Stat


class Absent(msgspec.Struct, frozen=True):
    """The znode does not exist. Only `Await` has set a watch."""


class Done(msgspec.Struct, frozen=True):
    results: tuple[Result, ...] = ()

    def stat(self, index: int) -> Stat:
        found = self.results[index]
        assert isinstance(found, Stat)
        return found


class Refused(msgspec.Struct, frozen=True):
    """Nothing was changed, because operation number `index` was refused."""

    index: int
    reason: ZNodeError


class Unsure(msgspec.Struct, frozen=True):
    pass


Answer = Names | Content | Absent | Done | Refused | Unsure


class RequestKind(StrEnum):
    """The purpose of a request."""

    # the place in the group, and barriers
    PREPARE = "prepare"
    FIND = "find"
    ENTER = "enter"
    CHECK = "check"
    RENEW = "renew"
    LOOK = "look"
    LIST = "list"
    GRANT = "grant"
    TAKE = "take"
    RELEASE = "release"
    LEAVE = "leave"
    # a member
    QUEUE = "queue"
    WATCH = "watch"
    STATUS = "status"
    PLAN = "plan"
    REPORT = "report"
    CLEAR = "clear"
    # the coordinator
    EPOCH = "epoch"
    RAISE = "raise"
    MEMBERS = "members"
    RESOURCES = "resources"
    STOPPED = "stopped"
    WRITE = "write"


class Errand(msgspec.Struct, frozen=True):
    kind: RequestKind
    request: Request
    subject: tuple[str, ...] = ()


def trouble_of_asking() -> Retry:
    return Retry(FIRST_BREATH_SECS, LONGEST_BREATH_SECS)


async def ask(
    zk: ZooKeeper, session: int | None, request: Request, changed: Callable[[str], None], trouble: Retry
) -> Answer:
    """Sends one request to ZooKeeper in the given session.

    `changed` is called with the path when a watch fires. `trouble` counts the failures of this
    caller.
    """
    if session is None or session != zk.session_id:
        return Unsure()
    try:
        answer = await _ask(zk, request, changed)
        trouble.succeeded()
        return answer
    except TransactionFailed as exc:
        return Refused(exc.index, exc.reason)
    except ZNodeError as exc:
        return Refused(0, exc)
    except TorrentdistError as exc:
        if trouble.failed(exc.code):
            log.info("no answer from ZooKeeper for a resource group", reason=exc.message)
        await zk.pause(trouble.pause_secs)
        return Unsure()


async def _ask(zk: ZooKeeper, request: Request, changed: Callable[[str], None]) -> Answer:
    match request:
        case Children(path, watch, fresh):
            if fresh:
                await zk.sync()
            names = await zk.children(path, (lambda: changed(path)) if watch else None)
            return Absent() if names is None else Names(tuple(names))
        case Get(path, watch):
            found = await zk.get(path, (lambda: changed(path)) if watch else None)
            return Absent() if found is None else Content(*found)
        case Await(path):
            return await _awaited(zk, path, lambda: changed(path))
        case Ensure(paths):
            for path in paths:
                await zk.ensure(path)
            return Done()
        case Commit(ops):
            return Done(tuple(await zk.commit(ops)))


async def _awaited(zk: ZooKeeper, path: str, watch: Callable[[], None]) -> Answer:
    while True:
        found = await zk.get(path, watch)
        if found is not None:
            return Content(*found)
        if await zk.exists(path, watch) is None:
            return Absent()
