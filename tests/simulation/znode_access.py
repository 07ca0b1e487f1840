"""Decides who may do what with a znode of the simulated ZooKeeper.

The schemes are `world` and `digest`.

Pure: no I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kazoo import exceptions as kazoo_errors
from kazoo.security import make_digest_acl_credential
from simulation.znodes import Znode

READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
Identity = tuple[str, str]
ANYONE: Identity = ("world", "anyone")


def identities_of(auth_data: Iterable[tuple[str, str]]) -> frozenset[Identity]:
    """Returns what a client that shows these credentials is to ZooKeeper."""
    shown = [credential.partition(":")[::2] for scheme, credential in auth_data if scheme == "digest"]
    return frozenset({ANYONE, *(("digest", make_digest_acl_credential(*pair)) for pair in shown)})


def check_access(node: Znode, permission: int, who: Collection[Identity]) -> None:
    """Raises what ZooKeeper answers to those who may not. The root's ACL is open."""
    if node.acl and not any(acl.perms & permission and (acl.id.scheme, acl.id.id) in who for acl in node.acl):
        raise kazoo_errors.NoAuthError
