"""Access control of our znodes: their owner has all permissions, everyone else none.

A process that can write here can run code on every host.
Always: either the whole tree has our ACL, or the first znode that differs is named.
Never: know kazoo, or log a password.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torrentdist.model.configuration.settings import read_secret
from torrentdist.model.errors import TorrentdistError

ALL_PERMISSIONS = 31
_IN_FLIGHT = 64


@dataclass(frozen=True)
class Acl:
    scheme: str
    identity: str
    permissions: int = ALL_PERMISSIONS


OPEN = Acl("world", "anyone")


@dataclass(frozen=True)
class Credentials:
    user: str
    password: str = field(repr=False)


class AclTree(Protocol):
    """The part of the ZooKeeper session that the check uses."""

    acl: Acl

    async def children(self, path: str) -> list[str] | None: ...
    async def acls(self, path: str) -> list[Acl] | None: ...
    async def secure(self, path: str) -> None: ...


def read_credentials(auth_file: str) -> Credentials:
    """Reads `user:password` from the first line of the file."""
    lines = read_secret(auth_file).splitlines()
    user, colon, password = lines[0].strip().partition(":")
    if not user or not colon or not password:
        raise TorrentdistError("secret_invalid", path=auth_file, detail="its first line is not user:password")
    return Credentials(user, password)


def digest_acl(credentials: Credentials) -> Acl:
    """Returns an ACL of ZooKeeper's digest scheme: the user's name and a hash (SHA-1, as its
    protocol requires)."""
    hashed = hashlib.sha1(f"{credentials.user}:{credentials.password}".encode(), usedforsecurity=False).digest()
    return Acl("digest", f"{credentials.user}:{base64.b64encode(hashed).decode()}")


def sasl_acl(credentials: Credentials) -> Acl:
    return Acl("sasl", credentials.user)


def flaw(found: Sequence[Acl], wanted: Acl) -> str | None:
    """Describes how a znode's ACL differs from ours, or returns None if it does not."""
    if list(found) == [wanted]:
        return None
    others = [acl for acl in found if (acl.scheme, acl.identity) != (wanted.scheme, wanted.identity)]
    if others:
        return "it grants " + ", ".join(f"{acl.scheme}:{acl.identity.partition(':')[0]}" for acl in others)
    return "it grants its owner too little"


async def check_tree(tree: AclTree) -> None:
    """Raises `acl_mismatch` with the first path whose ACL is not ours. Does nothing in an open
    tree."""
    if tree.acl == OPEN:
        return

    async def check(path: str) -> None:
        wrong = await _flaw_at(tree, path)
        if wrong is not None:
            raise TorrentdistError("acl_mismatch", path=path, detail=wrong)

    await _walk(tree, check)


async def repair_tree(tree: AclTree) -> int:
    """Sets our ACL on every znode. Returns the number of znodes that had a different one."""
    mended: list[str] = []

    async def repair(path: str) -> None:
        if await _flaw_at(tree, path) is not None:
            await tree.secure(path)
            mended.append(path)

    await _walk(tree, repair)
    return len(mended)


async def _flaw_at(tree: AclTree, path: str) -> str | None:
    found = await tree.acls(path)
    return None if found is None else flaw(found, tree.acl)


async def _walk(tree: AclTree, visit: Callable[[str], Awaitable[None]]) -> None:
    """Visits every znode, parents before children, a limited number at a time."""
    level = ["/"]
    room = asyncio.Semaphore(_IN_FLIGHT)

    async def step(path: str) -> list[str]:
        async with room:
            await visit(path)
            names = await tree.children(path) or []
            return [f"{path.rstrip('/')}/{name}" for name in sorted(names)]

    while level:
        tasks = [asyncio.ensure_future(step(path)) for path in level]
        try:
            found = [await task for task in tasks]  # Await them in order, so that the first path is named.
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        level = [path for paths in found for path in paths]
