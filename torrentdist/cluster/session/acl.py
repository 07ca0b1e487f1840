"""Access control of our znodes: who we are to ZooKeeper, and whether the tree is closed to others.

A process that can write here can run code on every host.
Always: either the whole tree has the ACLs of acl_table.py, or the first znode that differs is
named.
Never: know kazoo, or log a password.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torrentdist.cluster.session.acl_table import (
    OPEN,
    READ,
    Acl,
    AclTable,
    digest_acl,
    flaw,
    sasl_acl,
)
from torrentdist.model.access.zookeeper_identity import (
    READERS,
    Credentials,
    check_secret,
    derived,
    host_of,
    parse_credentials,
)
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.configuration.settings import read_secret
from torrentdist.model.errors import TorrentdistError

_IN_FLIGHT = 64


@dataclass(frozen=True)
class TreeIdentity:
    """The credentials that a process shows to ZooKeeper, and the ACLs of znodes that it creates."""

    table: AclTable
    credentials: tuple[Credentials, ...] = field(default=(), repr=False)
    host: str | None = None
    """The id of the host that this process is by its own identity; None: it has none."""

    @property
    def host_user(self) -> str:
        """Our user, if it is that of one host; otherwise empty."""
        return "" if self.host is None else self.credentials[0].user


class AclTree(Protocol):
    """The part of the ZooKeeper session that the check uses."""

    identity: TreeIdentity

    async def get(self, path: str) -> tuple[bytes, object] | None: ...
    async def children(self, path: str) -> list[str] | None: ...
    async def acls(self, path: str) -> list[Acl] | None: ...
    async def secure(self, path: str, acls: Sequence[Acl]) -> None: ...


def read_identity(config: ZooKeeperConfig) -> TreeIdentity:
    """Reads the auth file. Its first line is our own identity; a second line says that it is one of
    many, and what they read with."""
    if not config.auth_file:
        if config.identities:
            raise TorrentdistError("config_missing", detail="zookeeper.identities needs zookeeper.auth_file")
        return TreeIdentity(AclTable(OPEN))
    own, *more = read_credentials(config.auth_file)
    if config.sasl:
        return TreeIdentity(AclTable(sasl_acl(own)), (own,))
    if config.identities:
        check_secret(own, config.auth_file)
        return TreeIdentity(AclTable(digest_acl(own), secret=own.password), (own, derived(own.password, READERS)))
    readers = [each for each in more if each.user == READERS][:1]
    also = tuple(digest_acl(each, READ) for each in readers)
    return TreeIdentity(AclTable(digest_acl(own), also), (own, *readers), host_of(own.user) if readers else None)


def read_credentials(auth_file: str) -> list[Credentials]:
    """Reads `user:password` from the lines of the file."""
    return parse_credentials(read_secret(auth_file), auth_file)


async def check_tree(tree: AclTree) -> None:
    """Raises `acl_mismatch` with the first path whose ACL is not ours. Does nothing in an open
    tree. A host loses its rights before it loses its place, so that is no flaw."""
    if tree.identity.table.is_open:
        return

    async def check(path: str) -> None:
        found, wanted = await _acls_at(tree, path)
        wrong = flaw(found, wanted)
        if wrong is not None and not tree.identity.table.lacks_holder(path, found):
            raise TorrentdistError("acl_mismatch", path=path, detail=wrong)

    await _walk(tree, check)


async def repair_tree(tree: AclTree) -> int:
    """Sets our ACL on every znode. Returns the number of znodes that had a different one."""
    mended: list[str] = []

    async def repair(path: str) -> None:
        found, wanted = await _acls_at(tree, path)
        if flaw(found, wanted) is not None:
            await tree.secure(path, wanted)
            mended.append(path)

    await _walk(tree, repair)
    return len(mended)


async def _acls_at(tree: AclTree, path: str) -> tuple[Sequence[Acl], Sequence[Acl]]:
    """Returns the ACL of a znode, and the one that it should have.

    A barrier can be deleted, or get another holder, between the read of its ACL and that of its
    data. They are read again until two looks show the same, or what is right."""
    look, before = await _look_at(tree, path), None
    while flaw(*look) is not None and look != before:
        look, before = await _look_at(tree, path), look
    return look


async def _look_at(tree: AclTree, path: str) -> tuple[Sequence[Acl], Sequence[Acl]]:
    table = tree.identity.table
    found = await tree.acls(path)
    node = await tree.get(path) if table.depends_on_data(path) else None
    wanted = table.of(path, b"" if node is None else node[0])
    return (wanted if found is None else found), wanted


async def _walk(tree: AclTree, visit: Callable[[str], Awaitable[None]]) -> None:
    """Visits every znode that is the masters' concern, parents before children, a limited number at
    a time."""
    level = ["/"]
    room = asyncio.Semaphore(_IN_FLIGHT)

    async def step(path: str) -> list[str]:
        async with room:
            await visit(path)
            names = await tree.children(path) or []
        below = [f"{path.rstrip('/')}/{name}" for name in sorted(names)]
        return [child for child in below if tree.identity.table.judges(child)]

    while level:
        tasks = [asyncio.ensure_future(step(path)) for path in level]
        try:
            found = [await task for task in tasks]  # Await them in order, so that the first path is named.
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        level = [path for paths in found for path in paths]
