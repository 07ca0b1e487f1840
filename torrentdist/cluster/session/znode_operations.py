"""The values that go into and come out of ZooKeeper: operations, stats, states, and what can go wrong with one znode.

Must not do: know kazoo. Outcomes that a caller decides by are small exceptions of their own; what a user meets is a
TorrentdistError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from torrentdist.model.errors import TorrentdistError

ANY_VERSION = -1
MAX_REQUEST_BYTES = 900_000
"""ZooKeeper drops the connection of who sends more than 1 MiB, which looks like an outage and is retried for ever."""


class SessionState(StrEnum):
    CONNECTING = "connecting"
    """No session yet."""
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """Cut off. The session may be over already; ZooKeeper cannot tell us."""
    LOST = "lost"
    """The session is over, and everything ephemeral with it. A new one follows by itself."""
    CLOSED = "closed"


@dataclass(frozen=True)
class SessionId:
    """With both, any process can take the session up, or end it: keep the password as a secret."""

    id: int
    password: bytes


@dataclass(frozen=True)
class Stat:
    version: int
    ephemeral_owner: int
    """The session that an ephemeral znode belongs to; 0 for a persistent one."""
    mtime: float
    """ZooKeeper's clock at the last write, in seconds."""
    created_zxid: int
    modified_zxid: int
    children_zxid: int = 0
    """Of the last transaction that made or removed a child."""


@dataclass(frozen=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True)
class Set:
    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True)
class Delete:
    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True)
class Check:
    """The znode exists and, unless any version will do, has this version."""

    path: str
    version: int = ANY_VERSION


Op = Create | Set | Delete | Check
Result = str | Stat | None
"""Of a Create the path, of a Set the stat, of the others nothing."""


class ZNodeError(Exception):
    """A request that ZooKeeper answered with no, because of one znode."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{type(self).__name__}: {path}")


class NoNode(ZNodeError):
    pass


class NodeExists(ZNodeError):
    pass


class BadVersion(ZNodeError):
    pass


class NotEmpty(ZNodeError):
    """A delete of a znode that has children."""


class TransactionFailed(Exception):
    """Nothing of the transaction was done, because of `ops[index]`."""

    def __init__(self, ops: Sequence[Op], index: int, reason: ZNodeError) -> None:
        self.ops = tuple(ops)
        self.index = index
        self.reason = reason
        super().__init__(f"operation {index} of {len(ops)}: {reason}")

    @property
    def op(self) -> Op:
        return self.ops[self.index]


def within(failed: TransactionFailed, ops: Sequence[Op], ahead: int) -> TransactionFailed:
    """The same failure, told in the caller's paths; `ahead`: how many operations were sent before the caller's."""
    index = failed.index - ahead
    return TransactionFailed(ops, index, type(failed.reason)(ops[index].path))


class SessionExpired(TorrentdistError):
    """The request was not done: the session was over when it reached ZooKeeper."""

    def __init__(self) -> None:
        super().__init__("zookeeper_unavailable", detail="the session is over")


def request_size(ops: Sequence[Op]) -> int:
    """An upper bound of what these operations need on the wire."""
    overhead = 256  # version, flags, and an ACL with a user name of sensible length
    return sum(overhead + len(op.path.encode()) + len(getattr(op, "data", b"")) for op in ops)


def check_size(ops: Sequence[Op]) -> None:
    size = request_size(ops)
    if size > MAX_REQUEST_BYTES:
        raise TorrentdistError(
            "too_large", what=f"a write to {ops[0].path}, in bytes,", size=size, limit=MAX_REQUEST_BYTES
        )
