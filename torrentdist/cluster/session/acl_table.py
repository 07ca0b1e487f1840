"""The ACL of each znode, by its path: the one table that says who may do what in the tree.

Masters may do everything. Where hosts and resource groups have identities, every other identity
gets exactly what a row of the table says.
Always: a znode whose ACL depends on an identity holds that identity's user as its data, which only
masters write. Pure: no I/O and no clock.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from torrentdist.model.access.zookeeper_identity import READERS, Credentials, derived, group_user

READ, WRITE, CREATE, DELETE = 1, 2, 4, 8
ALL_PERMISSIONS = 31


class Acl(msgspec.Struct, frozen=True):
    scheme: str
    identity: str
    permissions: int = ALL_PERMISSIONS


OPEN = Acl("world", "anyone")


def digest_acl(credentials: Credentials, permissions: int = ALL_PERMISSIONS) -> Acl:
    """Returns an ACL of ZooKeeper's digest scheme: the user's name and a hash (SHA-1, as its
    protocol requires)."""
    hashed = hashlib.sha1(credentials.line.encode(), usedforsecurity=False).digest()
    return Acl("digest", f"{credentials.user}:{base64.b64encode(hashed).decode()}", permissions)


def sasl_acl(credentials: Credentials) -> Acl:
    return Acl("sasl", credentials.user)


class AclRow(msgspec.Struct, frozen=True):
    """What identities other than the masters' may do at the paths of a pattern."""

    pattern: str
    readers: int = 0
    holder: int = 0
    """Permissions of the user that the znode's data names."""
    group: int = 0
    """Permissions of the members of the resource group that the path is in."""


_OWN: Final = READ | CREATE | DELETE
"""Permissions to list, create and delete children."""
_ID: Final = "[^/]+"
ROWS: Final = (
    AclRow("/cluster", readers=READ),
    AclRow("/epoch", readers=READ),
    AclRow("/masters", readers=READ),
    AclRow(f"/masters/{_ID}", readers=READ),
    AclRow(f"/assignments/{_ID}", readers=READ),
    AclRow("/removals", readers=READ),
    AclRow(f"/places/{_ID}", holder=_OWN),
    AclRow(f"/groups/jobs/members/{_ID}", holder=_OWN),
    AclRow(f"/groups/jobs/barriers/{_ID}", readers=READ, holder=_OWN),
    AclRow("/groups", readers=READ),
    AclRow("/groups/jobs(/.*)?"),
    AclRow(f"/groups/{_ID}", group=READ | WRITE),
    AclRow(f"/groups/{_ID}/(members|barriers|stopped)", group=_OWN),
    AclRow(f"/groups/{_ID}/(status|plan|epoch)", group=READ | WRITE),
    AclRow(f"/groups/{_ID}/resources", group=READ),
)
_COMPILED: Final = [(re.compile(row.pattern), row) for row in ROWS]
_THEIRS: Final = re.compile(
    rf"/places/{_ID}/.+|/groups/jobs/(members|barriers)/{_ID}/.+|/groups/{_ID}/(members|barriers|stopped)/.+"
)
"""Znodes that hosts and members create, with ACLs that they choose."""


def row_of(path: str) -> AclRow:
    return next((row for pattern, row in _COMPILED if pattern.fullmatch(path)), AclRow(path))


def is_theirs(path: str) -> bool:
    """Whether a host or a member creates this znode, so that its ACL is no concern of the
    masters."""
    return _THEIRS.fullmatch(path) is not None and row_of(path).holder == 0


@dataclass(frozen=True)
class AclTable:
    """The ACLs that one client of ZooKeeper gives to znodes."""

    own: Acl
    also: tuple[Acl, ...] = ()
    """Further entries of each znode that a host or a member creates."""
    secret: str = field(default="", repr=False)
    """The masters' password, where other identities are derived from it."""

    @property
    def is_open(self) -> bool:
        return self.own == OPEN

    @property
    def is_graded(self) -> bool:
        """Whether the ACL depends on the path."""
        return bool(self.secret)

    def of(self, path: str, data: bytes = b"") -> tuple[Acl, ...]:
        """Returns the ACL of a znode with this data."""
        if not self.secret:
            return (self.own, *self.also)
        row = row_of(path)
        others = [(READERS, row.readers), (data.decode(errors="replace"), row.holder)]
        if row.group:
            others.append((group_user(path.split("/")[2]), row.group))
        return self.own, *(self._entry(user, may) for user, may in others if may and user)

    def _entry(self, user: str, permissions: int) -> Acl:
        return digest_acl(derived(self.secret, user), permissions)

    def depends_on_data(self, path: str) -> bool:
        return self.is_graded and bool(row_of(path).holder)

    def lacks_holder(self, path: str, acls: Sequence[Acl]) -> bool:
        """Whether this znode may have a holder, and only masters have rights to it now."""
        return self.depends_on_data(path) and list(acls) == [self.own]

    def judges(self, path: str) -> bool:
        """Whether the ACL of this znode has to be the one of the table."""
        return not (self.is_graded and is_theirs(path))


def flaw(found: Sequence[Acl], wanted: Sequence[Acl]) -> str | None:
    """Describes how a znode's ACL differs from ours, or returns None if it does not."""
    if len(found) == len(wanted) and set(found) == set(wanted):
        return None
    known = {(acl.scheme, acl.identity): acl.permissions for acl in wanted}
    others = [acl for acl in found if (acl.scheme, acl.identity) not in known]
    if others:
        return "it grants " + ", ".join(f"{acl.scheme}:{acl.identity.partition(':')[0]}" for acl in others)
    more = [acl for acl in found if acl.permissions & ~known[acl.scheme, acl.identity]]
    if more:
        return "it grants too much to " + ", ".join(acl.identity.partition(":")[0] for acl in more)
    return "it grants too little"
