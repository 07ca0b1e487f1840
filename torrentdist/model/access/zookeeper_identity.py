"""The identities that ZooKeeper knows: the masters', one for each host and each resource group, and
one that all of them read with.

Every password but the masters' own is derived from that one, so nothing has to be stored.
Always: an identity that was shut out is never given again: the next one has another name.
Pure: no I/O and no clock.
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError

MASTERS: Final = "masters"
READERS: Final = "readers"
LEAST_SECRET: Final = 32
"""Least number of characters of the masters' password. A host could guess a shorter one from its
own, which is derived from it."""
_HOST: Final = "host-"
_GROUP: Final = "group-"


@dataclass(frozen=True)
class Credentials:
    user: str
    password: str = field(repr=False)

    @property
    def line(self) -> str:
        return f"{self.user}:{self.password}"


def parse_credentials(text: str, path: str) -> list[Credentials]:
    """Reads `user:password` from each line. Raises `secret_invalid`."""
    found = []
    for line in text.splitlines() or [""]:
        user, colon, password = line.strip().partition(":")
        if not user or not colon or not password:
            raise TorrentdistError("secret_invalid", path=path, detail="a line is not user:password")
        found.append(Credentials(user, password))
    return found


def auth_text(identity: Sequence[Credentials]) -> str:
    """Returns the content of an auth file."""
    return "".join(f"{each.line}\n" for each in identity)


def derived(secret: str, user: str) -> Credentials:
    """Returns the credentials of a user. `secret` is the masters' password."""
    message = f"torrentdist zookeeper\0{user}".encode()
    return Credentials(user, hmac.new(secret.encode(), message, hashlib.sha256).hexdigest())


def host_user(id_: str, revoked_until: float = 0.0) -> str:
    """Returns the user of a host. After a revocation the id belongs to another user."""
    since = f"@{revoked_until * 1000:.0f}" if revoked_until else ""
    return f"{_HOST}{ids.peer_id(id_)}{since}"


def host_of(user: str) -> str | None:
    """Returns the id of the host that this user is; None if it is no host."""
    return user.removeprefix(_HOST).partition("@")[0] if user.startswith(_HOST) else None


def group_user(group: str) -> str:
    return _GROUP + group


def identity_of(secret: str, user: str) -> tuple[Credentials, ...]:
    """Returns the credentials that a host or a member of a group shows to ZooKeeper: its own, and
    those of the readers."""
    return derived(secret, user), derived(secret, READERS)


def check_secret(credentials: Credentials, origin: str) -> None:
    """Raises `secret_invalid` if passwords cannot be derived safely from this one."""
    if len(credentials.password) < LEAST_SECRET:
        detail = f"identities of hosts are derived from its password, which has fewer than {LEAST_SECRET} characters"
        raise TorrentdistError("secret_invalid", path=origin, detail=detail)
