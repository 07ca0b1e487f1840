"""Passes: a master lets a sender read one thing from another host, without the cluster's token.

A pass is a message authentication code over what may be read and until when, under the token that
the daemons share. Whoever has the pass may read that and nothing else.
Always: a pass ends by itself.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

LIFETIME_SECS: Final = 900.0
_DIGITS: Final = 32


def new_pass(token: str, prefix: str, expires_at: float) -> str:
    """Returns a pass for all paths that begin with `prefix`."""
    until = int(expires_at)
    return f"{prefix}:{until}:{_code(token, prefix, until)}"


def admits(token: str, given: str, path: str, now: float) -> bool:
    """Whether this pass lets its sender read this path now."""
    prefix, _, rest = given.partition(":")
    until, _, code = rest.partition(":")
    if not (until.isascii() and until.isdigit() and len(until) <= 12) or not path.startswith(prefix):
        return False
    is_ours = hmac.compare_digest(_code(token, prefix, int(until)).encode(), code.encode(errors="replace"))
    return is_ours and now < int(until)


def _code(token: str, prefix: str, until: int) -> str:
    message = f"torrentdist pass\0{prefix}\0{until}".encode(errors="replace")
    return hmac.new(token.encode(), message, hashlib.sha256).hexdigest()[:_DIGITS]
