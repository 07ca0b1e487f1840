"""A KazooClient in memory, with the methods that the product's kazoo_client.py uses."""

from __future__ import annotations

from typing import Any

from simulation.kazoo_answers import Answer
from simulation.kazoo_connection import OVERHEAD, KazooConnection
from simulation.znode_access import ADMIN, READ
from simulation.znodes import Znode


class SimulatedKazoo(KazooConnection):
    def get_async(self, path: str, watch: Any = None) -> Answer:
        def get() -> Any:
            node = self._node(READ, path)
            self._watch(self.server.data_watches, path, watch)
            return node.data, node.stat()

        return self._ask(get, reads=True)

    def exists_async(self, path: str, watch: Any = None) -> Answer:
        def exists() -> Any:
            self._watch(self.server.data_watches, path, watch)
            is_there = path in self.server.seen_by(self.address).nodes
            return self._node(READ, path).stat() if is_there else None

        return self._ask(exists, reads=True)

    def get_children_async(self, path: str, watch: Any = None) -> Answer:
        def children() -> Any:
            node = self._node(READ, path)
            self._watch(self.server.child_watches, path, watch)
            return list(node.children)

        return self._ask(children, reads=True)

    def sync_async(self, path: str) -> Answer:
        return self._ask(lambda: path)

    def get_acls_async(self, path: str) -> Answer:
        return self._ask(lambda: (self._node(READ | ADMIN, path).acl, self._node(READ | ADMIN, path).stat()))

    def set_acls_async(self, path: str, acls: list[Any]) -> Answer:
        def set_acl() -> None:
            assert self._session is not None
            self.server.set_acl(self._session, path, acls)

        return self._ask(set_acl)

    def _node(self, permission: int, path: str) -> Znode:
        assert self._session is not None
        return self.server.node_for(self._session, permission, path, self.address)

    def create_async(self, path: str, data: bytes, acl: Any, ephemeral: bool, sequence: bool) -> Answer:
        return self._commit([("create", path, data, acl, ephemeral, sequence)], single=True)

    def set_async(self, path: str, data: bytes, version: int) -> Answer:
        return self._commit([("set", path, data, version)], single=True)

    def delete_async(self, path: str, version: int) -> Answer:
        return self._commit([("delete", path, version)], single=True)

    def transaction(self) -> _Transaction:
        return _Transaction(self)

    def _commit(self, ops: list[tuple[Any, ...]], *, single: bool = False) -> Answer:
        size = sum(OVERHEAD + len(op[1]) + (len(op[2]) if isinstance(op[2], bytes) else 0) for op in ops)

        def commit() -> Any:
            assert self._session is not None
            results = self.server.commit(self._session, ops)
            if single and isinstance(results[0], Exception):
                raise results[0]
            return results[0] if single else results

        return self._ask(commit, size)


class _Transaction:
    def __init__(self, client: SimulatedKazoo) -> None:
        self._client = client
        self._ops: list[tuple[Any, ...]] = []

    def create(self, path: str, data: bytes, acl: Any, ephemeral: bool, sequence: bool) -> None:
        self._ops.append(("create", path, data, acl, ephemeral, sequence))

    def set_data(self, path: str, data: bytes, version: int) -> None:
        self._ops.append(("set", path, data, version))

    def delete(self, path: str, version: int) -> None:
        self._ops.append(("delete", path, version))

    def check(self, path: str, version: int) -> None:
        self._ops.append(("check", path, version))

    def commit_async(self) -> Answer:
        return self._client._commit(self._ops)
