"""A model of ZooKeeper as a tree in memory: sessions, ephemeral and sequential znodes, versions,
watches.

It answers the requests of torrentdist.cluster.rebalance.group_requests. Nothing happens by itself:
there is no time and no network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torrentdist.cluster.rebalance.group_requests import (
    Absent,
    Answer,
    Await,
    Children,
    Commit,
    Content,
    Done,
    Ensure,
    Get,
    Names,
    Refused,
    Request,
)
from torrentdist.cluster.session.znode_operations import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    Result,
    Set,
    Stat,
    ZNodeError,
)

Fired = Callable[[int, str], None]
"""Called with the session and the path of a watch that fires."""


@dataclass
class Node:
    data: bytes
    owner: int
    created: int
    modified: int
    mtime: float
    version: int = 0
    numbered: int = 0

    def stat(self) -> Stat:
        return Stat(self.version, self.owner, self.mtime, self.created, self.modified)


@dataclass
class Tree:
    fired: Fired
    nodes: dict[str, Node] = field(default_factory=dict)
    zxid: int = 0
    now: float = 0.0
    data_watches: set[tuple[int, str]] = field(default_factory=set)
    child_watches: set[tuple[int, str]] = field(default_factory=set)

    def answer(self, session: int, request: Request) -> Answer:
        match request:
            case Children(path, watch):
                if path not in self.nodes:
                    return Absent()
                if watch:
                    self.child_watches.add((session, path))
                return Names(self.children(path))
            case Get(path, watch):
                node = self.nodes.get(path)
                if node is None:
                    return Absent()
                if watch:
                    self.data_watches.add((session, path))
                return Content(node.data, node.stat())
            case Await(path):
                self.data_watches.add((session, path))
                node = self.nodes.get(path)
                return Absent() if node is None else Content(node.data, node.stat())
            case Ensure(paths):
                for path in paths:
                    self.ensure(path)
                return Done()
            case Commit(ops):
                return self.commit(session, ops)

    def children(self, path: str) -> tuple[str, ...]:
        return tuple(name.rpartition("/")[2] for name in self.nodes if name.rpartition("/")[0] == path)

    def ensure(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if parent:
            self.ensure(parent)
        if path not in self.nodes:
            self._do(0, Create(path))

    def commit(self, session: int, ops: tuple[Op, ...]) -> Answer:
        before = {path: Node(**vars(node)) for path, node in self.nodes.items()}
        self.zxid += 1
        results: list[Result] = []
        touched: list[Op] = []
        for index, op in enumerate(ops):
            try:
                result = self._do(session, op)
            except ZNodeError as refusal:
                self.nodes = before
                return Refused(index, refusal)
            results.append(result)
            touched.append(Create(result) if isinstance(result, str) else op)
        for op in touched:
            self._fire(op)
        return Done(tuple(results))

    def expire(self, session: int) -> None:
        """Ends a session, and deletes its ephemeral znodes in one transaction."""
        self.zxid += 1
        own = [path for path, node in self.nodes.items() if node.owner == session]
        for path in own:
            del self.nodes[path]
        self.data_watches = {watch for watch in self.data_watches if watch[0] != session}
        self.child_watches = {watch for watch in self.child_watches if watch[0] != session}
        for path in own:
            self._fire(Delete(path))

    def _do(self, session: int, op: Op) -> Result:
        match op:
            case Create(path, data, ephemeral, sequential):
                parent = self.nodes.get(path.rpartition("/")[0])
                if parent is None and path.count("/") > 1:
                    raise NoNode(path)
                if sequential and parent is not None:
                    path = f"{path}{parent.numbered:010}"
                if path in self.nodes:
                    raise NodeExists(path)
                if parent is not None:
                    parent.numbered += 1
                self.nodes[path] = Node(data, session if ephemeral else 0, self.zxid, self.zxid, self.now)
                return path
            case Set(path, data, version):
                node = self._versioned(path, version)
                node.data, node.version, node.modified, node.mtime = data, node.version + 1, self.zxid, self.now
                return node.stat()
            case Delete(path, version):
                self._versioned(path, version)
                if self.children(path):
                    raise NotEmpty(path)
                del self.nodes[path]
                return None
            case Check(path, version):
                self._versioned(path, version)
                return None

    def _versioned(self, path: str, version: int) -> Node:
        if path not in self.nodes:
            raise NoNode(path)
        if version not in (ANY_VERSION, self.nodes[path].version):
            raise BadVersion(path)
        return self.nodes[path]

    def _fire(self, op: Op) -> None:
        match op:
            case Set(path):
                self._tell(self.data_watches, path)
            case Create(path):
                self._tell(self.child_watches, path.rpartition("/")[0])
            case Delete(path):
                self._tell(self.data_watches, path)
                self._tell(self.child_watches, path)
                self._tell(self.child_watches, path.rpartition("/")[0])

    def _tell(self, watches: set[tuple[int, str]], path: str) -> None:
        for watch in sorted(watch for watch in watches if watch[1] == path):
            watches.discard(watch)
            self.fired(*watch)
