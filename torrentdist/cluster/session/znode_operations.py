"""Values that go into and come out of ZooKeeper: operations, stats, session states and errors of
znodes.

Outcomes that a caller decides by are small exceptions of their own. Errors that a user meets are
TorrentdistErrors.
Never: know kazoo.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from torrentdist.model.errors import TorrentdistError

ANY_VERSION = -1
MAX_REQUEST_BYTES = 900_000
"""Largest transaction that we send. ZooKeeper drops connections that send more than 1 MiB; that
looks like an outage, and the request would be retried for ever."""


class SessionState(StrEnum):
    CONNECTING = "connecting"
    """No session yet."""
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """Cut off. The session may be over already; ZooKeeper cannot tell us."""
    LOST = "lost"
    """The session and its ephemeral znodes are gone. A new session follows by itself."""
    CLOSED = "closed"


@dataclass(frozen=True)
class SessionId:
    """Id and password of a session. Any process that has both can take it over or end it."""

    id: int
    password: bytes


@dataclass(frozen=True)
class Stat:
    version: int
    ephemeral_owner: int
    """The session that owns an ephemeral znode. 0 for a persistent one."""
    mtime: float
    """ZooKeeper's clock at the last write, in seconds."""
    created_zxid: int
    modified_zxid: int
    children_zxid: int = 0
    """zxid of the last transaction that created or removed a child."""


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
    """Requires that the znode exists and has this version, if one is given."""

    path: str
    version: int = ANY_VERSION


Op = Create | Set | Delete | Check
Result = str | Stat | None
"""The path for a Create, the stat for a Set, None for the others."""


class ZNodeError(Exception):
    """ZooKeeper refused a request because of one znode."""

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
    """The znode to delete has children."""


class TransactionFailed(Exception):
    """The transaction was refused as a whole because of `ops[index]`."""

    def __init__(self, ops: Sequence[Op], index: int, reason: ZNodeError) -> None:
        self.ops = tuple(ops)
        self.index = index
        self.reason = reason
        super().__init__(f"operation {index} of {len(ops)}: {reason}")

    @property
    def op(self) -> Op:
        return self.ops[self.index]


def within(failed: TransactionFailed, ops: Sequence[Op], ahead: int) -> TransactionFailed:
    """Returns the failure in terms of the caller's operations. `ahead` operations were sent before
    them."""
    index = failed.index - ahead
    return TransactionFailed(ops, index, type(failed.reason)(ops[index].path))


class SessionExpired(TorrentdistError):
    """The request was not carried out: the session was over when it reached ZooKeeper."""

    def __init__(self) -> None:
        super().__init__("zookeeper_unavailable", detail="the session is over")


def request_size(ops: Sequence[Op]) -> int:
    """Returns an upper bound for the size of these operations on the wire, in bytes."""
    overhead = 256  # version, flags, and an ACL with a name of sensible length
    return sum(overhead + len(op.path.encode()) + len(getattr(op, "data", b"")) for op in ops)


def check_size(ops: Sequence[Op]) -> None:
    size = request_size(ops)
    if size > MAX_REQUEST_BYTES:
        raise TorrentdistError(
            "too_large", what=f"a write to {ops[0].path}, in bytes,", size=size, limit=MAX_REQUEST_BYTES
        )
