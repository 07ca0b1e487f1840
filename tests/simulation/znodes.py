"""The znodes and sessions of the simulated ZooKeeper, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kazoo.protocol.states import ZnodeStat


@dataclass
class Znode:
    data: bytes
    acl: list[Any]
    owner: int
    created: int
    modified: int
    mtime: float
    version: int = 0
    children_zxid: int = 0
    numbered: int = 0
    children: dict[str, None] = field(default_factory=dict)

    def stat(self) -> ZnodeStat:
        at = int(self.mtime * 1000)
        size, count = len(self.data), len(self.children)
        return ZnodeStat(
            self.created, self.modified, at, at, self.version, self.numbered, 0, self.owner, size, count,
            self.children_zxid,
        )  # fmt: skip


@dataclass
class Follower:
    """A server that is cut off from the others: it answers reads from what it had then."""

    nodes: dict[str, Znode]
    zxid: int


@dataclass(eq=False)
class ServerSession:
    id: int
    password: bytes
    timeout: float
    heard: float
    ephemerals: dict[str, None] = field(default_factory=dict)
    name: str = ""
    """The process that opened it."""
    auth: frozenset[tuple[str, str]] = frozenset()
    """The identities that its client has shown."""
    connection: Any = None
    """The client that is connected with it."""
