"""The values that pass between us and ZooKeeper: operations, stats, session states, and errors
about znodes.

Always: an outcome that a caller reacts to has its own small exception. An error that a user meets
is a TorrentdistError.
Never: know kazoo.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from torrentdist.model.errors import TorrentdistError

ANY_VERSION = -1
MAX_REQUEST_BYTES = 900_000
"""Largest transaction that we send. ZooKeeper drops a connection that sends more than 1 MiB. That
looks like an outage, and the request would be repeated forever."""
BATCH_BYTES = 400_000
"""Most bytes of a batch. What else belongs to its transaction has room beside it."""


class SessionState(StrEnum):
    CONNECTING = "connecting"
    """There is no session yet."""
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is lost. The session may have expired already; ZooKeeper cannot tell us."""
    LOST = "lost"
    """The session and its ephemeral znodes are gone. A new session follows by itself."""
    CLOSED = "closed"


class SessionId(msgspec.Struct, frozen=True):
    """Id and password of a session. A process that has both can take over or end the session."""

    id: int
    password: bytes


class Stat(msgspec.Struct, frozen=True):
    version: int
    ephemeral_owner: int
    """The session that owns an ephemeral znode; 0 for a persistent one."""
    mtime: float
    """Time of the last write on ZooKeeper's clock, in seconds."""
    created_zxid: int
    modified_zxid: int
    children_zxid: int = 0
    """zxid of the last transaction that created or removed a child."""


class Create(msgspec.Struct, frozen=True):
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class Set(msgspec.Struct, frozen=True):
    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(msgspec.Struct, frozen=True):
    path: str
    version: int = ANY_VERSION


class Check(msgspec.Struct, frozen=True):
    """Requires that the znode exists and, if a version is given, has that version."""

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
    """The whole transaction was refused because of `ops[index]`."""

    def __init__(self, ops: Sequence[Op], index: int, reason: ZNodeError) -> None:
        self.ops = tuple(ops)
        self.index = index
        self.reason = reason
        super().__init__(f"operation {index} of {len(ops)}: {reason}")

    @property
    def op(self) -> Op:
        return self.ops[self.index]


def within(failed: TransactionFailed, ops: Sequence[Op], ahead: int) -> TransactionFailed:
    """Returns the failure with an index into the caller's operations. `ahead` operations preceded
    them."""
    index = failed.index - ahead
    return TransactionFailed(ops, index, type(failed.reason)(ops[index].path))


class SessionExpired(TorrentdistError):
    """The request was not executed: the session had expired when it reached ZooKeeper."""

    def __init__(self) -> None:
        super().__init__("zookeeper_unavailable", detail="the session has expired")


def request_size(ops: Sequence[Op]) -> int:
    """Returns an upper bound for the size of these operations on the wire, in bytes."""
    overhead = 256  # Version, flags, and an ACL with a name of sensible length.
    return sum(overhead + len(op.path.encode()) + len(getattr(op, "data", b"")) for op in ops)


def fitting(ops: Sequence[Op], most: int) -> int:
    """Returns how many of these operations, from the first on, one batch takes: at most `most`, and
    no more bytes than BATCH_BYTES unless the first alone has more."""
    size = 0
    for number, op in enumerate(ops[:most]):
        size += request_size([op])
        if number and size > BATCH_BYTES:
            return number
    return min(most, len(ops))


def batches(ops: Sequence[Op], most: int) -> Iterator[Sequence[Op]]:
    """Yields these operations in batches of at most `most`."""
    begin = 0
    while begin < len(ops):
        end = begin + fitting(ops[begin : begin + most], most)
        yield ops[begin:end]
        begin = end


def check_size(ops: Sequence[Op]) -> None:
    size = request_size(ops)
    if size > MAX_REQUEST_BYTES:
        raise TorrentdistError(
            "too_large", what=f"a write to {ops[0].path}, in bytes,", size=size, limit=MAX_REQUEST_BYTES
        )
