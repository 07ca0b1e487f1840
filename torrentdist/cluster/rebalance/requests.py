"""The words in which the pure machines talk with ZooKeeper: one request at a time, one answer to each.

Always holds: a request is a value, so that a model of ZooKeeper can answer it as well as the real one. Must not do:
leave open what an answer proves. `Unsure` proves nothing: it may have been done, or be done yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import structlog

from torrentdist.cluster.operations import Op, Result, Stat, TransactionFailed, ZNodeError
from torrentdist.cluster.zookeeper import ZooKeeper
from torrentdist.model.errors import TorrentdistError

log = structlog.get_logger(__name__)
_BREATH_SECS = 0.05


@dataclass(frozen=True)
class Children:
    path: str
    watch: bool = False
    fresh: bool = False
    """At least as new as whatever was acknowledged to anybody before."""


@dataclass(frozen=True)
class Get:
    path: str
    watch: bool = False


@dataclass(frozen=True)
class Ensure:
    paths: tuple[str, ...]


@dataclass(frozen=True)
class Commit:
    ops: tuple[Op, ...]


Request = Children | Get | Ensure | Commit


@dataclass(frozen=True)
class Names:
    names: tuple[str, ...]


@dataclass(frozen=True)
class Content:
    data: bytes
    stat: Stat


@dataclass(frozen=True)
class Absent:
    """There is no such znode, and no watch was left."""


@dataclass(frozen=True)
class Done:
    results: tuple[Result, ...] = ()

    def stat(self, index: int) -> Stat:
        found = self.results[index]
        assert isinstance(found, Stat)
        return found


@dataclass(frozen=True)
class Refused:
    """Nothing of it was done, because of the operation `index`."""

    index: int
    reason: ZNodeError


@dataclass(frozen=True)
class Unsure:
    pass


Answer = Names | Content | Absent | Done | Refused | Unsure


class Kind(StrEnum):
    """What a request is for."""

    # a place in the group, and barriers
    PREPARE = "prepare"
    FIND = "find"
    ENTER = "enter"
    CHECK = "check"
    RENEW = "renew"
    LOOK = "look"
    LIST = "list"
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


@dataclass(frozen=True)
class Errand:
    kind: Kind
    request: Request
    subject: tuple[str, ...] = ()


async def ask(zk: ZooKeeper, session: int | None, request: Request, changed: Callable[[str], None]) -> Answer:
    """Put one request to ZooKeeper, in that session. `changed` is called with the path when a watch fires."""
    if session is None or session != zk.session_id:
        return Unsure()
    try:
        return await _ask(zk, request, changed)
    except TransactionFailed as exc:
        return Refused(exc.index, exc.reason)
    except ZNodeError as exc:
        return Refused(0, exc)
    except TorrentdistError as exc:
        log.info("no answer from ZooKeeper for the resource group", request=type(request).__name__, reason=exc.message)
        await asyncio.sleep(_BREATH_SECS)
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
        case Ensure(paths):
            for path in paths:
                await zk.ensure(path)
            return Done()
        case Commit(ops):
            return Done(tuple(await zk.commit(ops)))
