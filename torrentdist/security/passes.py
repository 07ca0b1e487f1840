"""Passes: a master lets a sender read one thing from another host, to which no token is sent.

A pass is a message authentication code over what may be read and until when, under a key that the
masters and the other host know. Its holder can read that and nothing else.
Always: a pass ends by itself. If hosts have identities in ZooKeeper, the key is made of the host's
password there, so an attacker who takes over a host learns no other host's key.
"""

import hashlib
import hmac
from typing import Final

from torrentdist.security.authorization import Principal, Proof, Role

OUTPUT_SECS: Final = 900.0
"""How long the output of a job may be read."""
AT_ONCE_SECS: Final = 10.0
"""How long a pass counts that is used at once. It is as old at most when its holder is revoked."""
PARAMETER: Final = "pass"
"""The query parameter that carries a pass."""
PASS_HOLDER: Final = Principal("pass", Role.HOST, Proof.PASS)
"""The sender of a request that a pass admits."""


def host_key(password: str) -> str:
    """Returns what a host and the masters make keys of, from the host's password in ZooKeeper."""
    return hmac.new(password.encode(), b"torrentdist host key", hashlib.sha256).hexdigest()


def new_pass(key: str, prefix: str, now: float, secs: float) -> str:
    """Returns a pass for all paths of one host that begin with `prefix`. It counts for `secs`."""
    until = int(now + secs)
    return f"{until}.{_code(key, prefix, until)}.{prefix}"


def admits(key: str, given: str, path: str, now: float) -> bool:
    """Whether this pass lets its sender read this path now."""
    until, _, rest = given.partition(".")
    code, _, prefix = rest.partition(".")
    if not key or not (until.isascii() and until.isdigit() and len(until) <= 12) or not path.startswith(prefix):
        return False
    is_ours = hmac.compare_digest(_code(key, prefix, int(until)).encode(), code.encode(errors="replace"))
    return is_ours and now < int(until)


def _code(key: str, prefix: str, until: int) -> str:
    message = f"torrentdist pass\0{prefix}\0{until}".encode(errors="replace")
    return hmac.new(key.encode(), message, hashlib.sha256).hexdigest()
