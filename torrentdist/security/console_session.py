"""Sessions of the console: a cookie that shows that its holder has signed in with a token.

A session is a message authentication code over the token's name, its hash and an end, under a key
that every master derives, so that each of them can verify it. It opens the pages under /ui/ only.
Always: it ends with its token, and has the role that the token has now.
Never: hold a token, or anything that a token could be made of.
Pure: no I/O and no clock.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final

from torrentdist.model.access.token_messages import TokenRecord
from torrentdist.security.authorization import TOKEN_HOLDER, Principal, Proof, Role
from torrentdist.security.tokens import ROLES, reads_of

COOKIE: Final = "torrentdist_console"
LIFETIME_SECS: Final = 12 * 3600.0
SHARED: Final = ""
"""The name in a session of the token that the daemons share."""


def session_key(job_key: bytes, ca_key: bytes) -> bytes:
    """Returns the key of sessions.

    Both secrets make their holder an operator anyway. Without either, sessions of one master mean
    nothing to another one.
    """
    known = job_key or hashlib.sha256(ca_key).digest() if job_key or ca_key else secrets.token_bytes(32)
    return hmac.new(known, b"torrentdist console sessions", hashlib.sha256).digest()


def new_session(key: bytes, name: str, token_hash: str, now: float) -> str:
    """Returns a session for the token of that name."""
    until = int(now + LIFETIME_SECS)
    return f"{until}.{name}.{_code(key, name, token_hash, until)}"


def principal_of_session(
    key: bytes, session: str, find: Callable[[str], TokenRecord | None], now: float
) -> Principal | None:
    """Returns the principal of a session; None if it is wrong, or over. `find` returns the record
    of a token's name.
    """
    until, _, rest = session.partition(".")
    name, _, code = rest.rpartition(".")
    if not (until.isascii() and until.isdigit() and len(until) <= 12):
        return None
    record = None if name == SHARED else find(name)
    if name != SHARED and (record is None or record.role not in ROLES):
        return None
    right = _code(key, name, "" if record is None else record.hash, int(until))
    if not hmac.compare_digest(right.encode(), code.encode(errors="replace")) or now >= int(until):
        return None
    if record is None:
        return Principal(TOKEN_HOLDER.name, TOKEN_HOLDER.role, Proof.SESSION, expires_at=float(until))
    if not record.is_usable(now):
        return None
    return Principal(
        name,
        Role(record.role),
        Proof.SESSION,
        bundles=record.bundles,
        reads=reads_of(record),
        expires_at=float(until),
    )


def form_key(key: bytes, sender: str) -> str:
    """Returns what a form of this sender's pages carries, so that no other page can make one.
    `sender`: the session, or the name of a sender who needs none.
    """
    return hmac.new(key, b"torrentdist console form\0" + sender.encode(errors="replace"), hashlib.sha256).hexdigest()


def _code(key: bytes, name: str, token_hash: str, until: int) -> str:
    message = f"{until}\0{name}\0{token_hash}".encode(errors="replace")
    return hmac.new(key, message, hashlib.sha256).hexdigest()
