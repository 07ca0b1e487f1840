"""Tokens with a name: how one is made, and whose one it is.

A token reads `td.NAME.SECRET`. The secret is made where the user is, and only its hash leaves that
place, so neither a master nor ZooKeeper nor a backup can give it away.
Always: comparing takes the same time whether or not there is a token of that name.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authorization import Principal, Proof, Role

if TYPE_CHECKING:
    from torrentdist.model.access.token_messages import TokenRecord

PREFIX: Final = "td"
SECRET_BYTES: Final = 32
ROLES: Final = (Role.READER, Role.UPLOADER, Role.SUBMITTER, Role.OPERATOR)
"""The roles that a token can have."""
_NOBODY: Final = hashlib.sha256(b"").hexdigest()
_HASH_DIGITS: Final = frozenset("0123456789abcdef")


def new_secret() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


def token_text(name: str, secret: str) -> str:
    return f"{PREFIX}.{name}.{secret}"


def hash_of(secret: str) -> str:
    """Returns the hash of a secret. A fast one is enough, since nobody can guess 32 random
    bytes.
    """
    return hashlib.sha256(secret.encode()).hexdigest()


def is_hash(text: str) -> bool:
    return len(text) == 64 and _HASH_DIGITS.issuperset(text)


def name_and_secret(token: str) -> tuple[str, str] | None:
    """Returns the parts of a token; None if it is no token with a name."""
    prefix, _, rest = token.partition(".")
    name, _, secret = rest.rpartition(".")
    return (name, secret) if prefix == PREFIX and name and secret else None


def principal_of_token(token: str, find: Callable[[str], TokenRecord | None], now: float) -> Principal | None:
    """Returns the principal of a token; None if it is wrong.

    `find` returns the record of a name. Only the sender of the right secret is told that its token
    has expired or was revoked.
    """
    parts = name_and_secret(token)
    if parts is None:
        return None
    name, secret = parts
    record = find(name)
    is_right = hmac.compare_digest(hash_of(secret), _NOBODY if record is None else record.hash)
    if record is None or not is_right or record.role not in ROLES:
        return None
    if record.revoked_at is not None:
        raise TorrentdistError("token_revoked", name=name)
    if not record.is_usable(now):
        raise TorrentdistError("token_expired", name=name)
    return Principal(
        name,
        Role(record.role),
        Proof.TOKEN,
        bundles=record.bundles,
        reads=reads_of(record),
        expires_at=record.expires_at,
    )


def is_unbound(record: TokenRecord) -> bool:
    """Whether a token was made before patterns bound what is read, so that it reads everything."""
    return record.reads is None and record.role != Role.OPERATOR


def reads_of(record: TokenRecord) -> tuple[str, ...]:
    """Returns the patterns of the bundles that a token may read."""
    if record.role == Role.OPERATOR or record.reads is None:
        return ("*",)
    return tuple(dict.fromkeys(pattern for pattern in (record.bundles, record.reads) if pattern))
