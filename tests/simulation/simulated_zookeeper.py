"""A ZooKeeper in memory: znodes, sessions and their expiry, watches that fire once, transactions.

Always: each change has a zxid of its own and is made whole or not at all. A session ends when
nothing came from its client for its timeout.
Never: ask who is a client's daemon. simulated_kazoo.py is the client.
Longer than most files: reads, changes and faults share one tree.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.protocol.states import ZnodeStat
from simulation.host_process import NOBODY
from simulation.virtual_loop import EPOCH
from simulation.znode_access import ADMIN, CREATE, DELETE, READ, WRITE, check_access
from simulation.znodes import Follower, ServerSession, Znode

from torrentdist.cluster.session import znode_operations
from torrentdist.master.changes import answered_requests

LARGEST_REQUEST = 1024 * 1024 - 1
"""The server drops a connection that sends more."""


class SimulatedZooKeeper:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.nodes: dict[str, Znode] = {"": Znode(b"", [], 0, 0, 0, 0.0)}
        self.sessions: dict[int, ServerSession] = {}
        self.zxid = 0
        self.up, self.frozen = True, False
        self.gone_at: float | None = None
        """Since when it is down. None: it is not."""
        self._frozen_at = 0.0
        """When it was frozen last."""
        self.largest_request = LARGEST_REQUEST
        self.senders_of_too_much: dict[str, None] = {}
        self.followers: dict[str, Follower] = {}
        """Servers that are cut off from the others, by the address of the host that each serves."""
        self.clients: dict[str, list[Any]] = {}
        """Clients that were connected to a server when it was cut off, by their address."""
        self._copy: Follower | None = None
        self._numbers = 0
        self.gone_owner = 0
        """The session that owned the znode that was deleted last."""
        self.writer: ServerSession | None = None
        """The session of the change that is told; None: a session's end."""
        self.data_watches: dict[str, dict[Any, None]] = {}
        self.child_watches: dict[str, dict[Any, None]] = {}
        self.on_change: list[Callable[[str, str], None]] = []
        """Called with what was done to which path, for each change of each transaction."""
        self._undo: list[Callable[[], object]] = []
        self._done: list[tuple[str, str]] = []

    def wall(self) -> float:
        return EPOCH + self.loop.time()

    # sessions

    def writer_name(self) -> str:
        return "ZooKeeper" if self.writer is None else self.writer.name

    def open_session(self, timeout: float, name: str) -> ServerSession:
        self._numbers += 1
        number = (1 << 56) + self._numbers
        session = ServerSession(number, number.to_bytes(16, "big"), timeout, self.loop.time(), name=name)
        self.sessions[session.id] = session
        self._watch_over(session)
        return session

    def _watch_over(self, session: ServerSession) -> None:
        if self.sessions.get(session.id) is not session:
            return
        left = session.heard + session.timeout - self.loop.time()
        if left <= 0 and self.up and not self.frozen:
            self.end_session(session.id)
            return
        # Also when the client's process is dead or paused.
        self.loop.call_later(max(left, 0.05), self._watch_over, session, context=NOBODY.context())

    def end_session(self, number: int) -> None:
        """Ends a session, and deletes its ephemeral znodes in one change."""
        session = self.sessions.pop(number, None)
        if session is None:
            return
        self.zxid += 1
        self.writer, self._undo, self._done = None, [], []
        for path in list(session.ephemerals):
            self._delete(path, -1)
        self._tell_changes()
        if session.connection is not None and not session.connection.is_cut_off():
            session.connection.session_ended()

    def cut_off(self, address: str) -> None:
        """Cuts off the server of this host. Its client notices only that no write is answered."""
        if address in self.followers:
            return
        self.followers[address] = Follower(copy.deepcopy(self.nodes), self.zxid)
        connected = [session.connection for session in self.sessions.values() if session.connection is not None]
        self.clients[address] = [client for client in connected if client.is_cut_off()]

    def rejoin(self, address: str) -> None:
        """Ends that: the server has dropped its clients, as it does when it misses its leader."""
        if self.followers.pop(address, None) is not None:
            for client in self.clients.pop(address, ()):
                client.session_ended()

    def forget_watches(self, watcher: Any) -> None:
        for table in (self.data_watches, self.child_watches):
            for watchers in table.values():
                watchers.pop(watcher, None)

    def restart(self) -> None:
        """The servers come back. They keep sessions, whose time begins anew."""
        self.up, self.gone_at = True, None
        for session in self.sessions.values():
            session.heard = self.loop.time()

    def wipe(self) -> None:
        """The servers come back with empty disks."""
        self.nodes, self.zxid = {"": Znode(b"", [], 0, 0, 0, 0.0)}, 0
        self.up, self.gone_at = True, None
        self.sessions.clear()
        self.data_watches.clear()
        self.child_watches.clear()

    def take_less(self, times: int) -> None:
        """Shrinks the largest request of the server, and those of its clients, alike."""
        self.largest_request = LARGEST_REQUEST // times
        for limit in ("MAX_REQUEST_BYTES", "BATCH_BYTES"):
            setattr(znode_operations, limit, getattr(znode_operations, limit) // times)
        answered_requests.MAX_ANSWER_BYTES //= times

    def copy_disks(self) -> None:
        kept = copy.deepcopy({path: node for path, node in self.nodes.items() if not node.owner})
        for path, node in kept.items():
            node.children = {name: None for name in node.children if f"{path}/{name}" in kept}
        self._copy = Follower(kept, self.zxid)

    def set_back(self) -> None:
        """The servers come back with the copies of their disks. Sessions are over."""
        self.wipe()
        if self._copy is not None:
            self.nodes, self.zxid = copy.deepcopy(self._copy.nodes), self._copy.zxid

    def freeze(self) -> None:
        self.frozen, self._frozen_at = True, self.loop.time()

    def away_since(self) -> float | None:
        """Returns since when it answers nobody, because it is down or frozen. None: it answers."""
        if not self.up:
            return self.gone_at
        return self._frozen_at if self.frozen else None

    def thaw(self) -> None:
        """The servers go on after a pause. Sessions that it outlasted are over."""
        self.frozen = False
        for session in [s for s in self.sessions.values() if self.loop.time() - s.heard > s.timeout]:
            self.end_session(session.id)

    # reading

    def node(self, path: str, address: str = "") -> Znode:
        """Returns a znode as the host with this address sees it."""
        found = self.seen_by(address).nodes.get(path)
        if found is None:
            raise kazoo_errors.NoNodeError
        return found

    def node_for(self, session: ServerSession, permission: int, path: str, address: str = "") -> Znode:
        """Returns a znode of which this client may do so."""
        found = self.node(path, address)
        check_access(found, permission, session.auth)
        return found

    def seen_by(self, address: str) -> SimulatedZooKeeper | Follower:
        return self.followers.get(address, self)

    def watch(self, table: dict[str, dict[Any, None]], path: str, watcher: Any) -> None:
        table.setdefault(path, {})[watcher] = None

    # changing

    def commit(self, session: ServerSession, ops: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Makes all changes or none. Returns results, or in a refused transaction an error for each
        operation, as ZooKeeper answers."""
        self.zxid += 1
        self.writer, self._undo, self._done = session, [], []
        results: list[Any] = []
        for index, (kind, *arguments) in enumerate(ops):
            try:
                results.append(getattr(self, f"_{kind}")(*arguments, *([session] if kind == "create" else [])))
            except kazoo_errors.KazooException as exc:
                for undo in reversed(self._undo):
                    undo()
                rest = len(ops) - index - 1
                before: list[Any] = [kazoo_errors.RolledBackError()] * index
                return [*before, exc, *[kazoo_errors.RuntimeInconsistency() for _ in range(rest)]]
        self._tell_changes()
        return results

    def set_acl(self, session: ServerSession, path: str, acl: list[Any]) -> None:
        self.zxid += 1
        self.node_for(session, ADMIN, path).acl = acl

    def _may(self, permission: int, node: Znode) -> None:
        """Checks what the client of this change may do. The end of a session may do everything."""
        if self.writer is not None:
            check_access(node, permission, self.writer.auth)

    def _create(
        self, path: str, data: bytes, acl: list[Any], ephemeral: bool, sequential: bool, session: ServerSession
    ) -> str:
        top, _, name = path.rpartition("/")
        parent = self.node(top)
        self._may(CREATE, parent)
        if parent.owner:
            raise kazoo_errors.NoChildrenForEphemeralsError
        if sequential:
            name = f"{name}{parent.numbered:010}"
            path = f"{top}/{name}"
        if path in self.nodes:
            raise kazoo_errors.NodeExistsError
        before = parent.numbered, parent.children_zxid
        owner = session.id if ephemeral else 0
        self.nodes[path] = Znode(data, acl, owner, self.zxid, self.zxid, self.wall(), children_zxid=self.zxid)
        parent.children[name] = None
        parent.numbered, parent.children_zxid = parent.numbered + 1, self.zxid
        if owner:
            session.ephemerals[path] = None

        def undo() -> None:
            parent.numbered, parent.children_zxid = before
            del self.nodes[path], parent.children[name]
            session.ephemerals.pop(path, None)

        self._undo.append(undo)
        self._done.append(("create", path))
        return path

    def _set(self, path: str, data: bytes, version: int) -> ZnodeStat:
        node = self._versioned(path, version)
        self._may(WRITE, node)
        before = node.data, node.version, node.modified, node.mtime

        def undo() -> None:
            node.data, node.version, node.modified, node.mtime = before

        self._undo.append(undo)
        node.data, node.version, node.modified, node.mtime = data, node.version + 1, self.zxid, self.wall()
        self._done.append(("set", path))
        return node.stat()

    def _delete(self, path: str, version: int) -> bool:
        top, _, name = path.rpartition("/")
        if path in self.nodes:
            self._may(DELETE, self.nodes[top])
        node = self._versioned(path, version)
        if node.children:
            raise kazoo_errors.NotEmptyError
        parent, owner = self.nodes[top], self.sessions.get(node.owner)
        order, before = list(parent.children), parent.children_zxid
        self.gone_owner = node.owner
        del self.nodes[path], parent.children[name]
        parent.children_zxid = self.zxid
        if owner is not None:
            owner.ephemerals.pop(path, None)

        def undo() -> None:
            self.nodes[path] = node
            parent.children, parent.children_zxid = dict.fromkeys(order), before
            if owner is not None:
                owner.ephemerals[path] = None

        self._undo.append(undo)
        self._done.append(("delete", path))
        return True

    def _check(self, path: str, version: int) -> bool:
        self._may(READ, self._versioned(path, version))
        return True

    def _versioned(self, path: str, version: int) -> Znode:
        node = self.node(path)
        if version not in (-1, node.version):
            raise kazoo_errors.BadVersionError
        return node

    def _tell_changes(self) -> None:
        done, self._done = self._done, []
        for kind, path in done:
            for hear in self.on_change:
                hear(kind, path)
            if kind != "create":
                self._fire(self.data_watches, path)
            else:
                self._fire(self.data_watches, path)
                self._fire(self.child_watches, path.rpartition("/")[0])
            if kind == "delete":
                self._fire(self.child_watches, path)
                self._fire(self.child_watches, path.rpartition("/")[0])

    @staticmethod
    def _fire(table: dict[str, dict[Any, None]], path: str) -> None:
        for watcher in table.pop(path, {}):
            watcher()
