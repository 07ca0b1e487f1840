"""A master's proof that it knows a token, without the token being sent.

The client asks with a number used once and the URL that it is about to use. A master answers for
its own URL only, so a server that passes the question on to a real master gets no answer that fits.
Always: the key is the hash of a secret. A token that people could guess gets no proof, since the
answer would let a stranger try guesses.
Pure: no I/O and no clock.
"""

import hashlib
import hmac
from typing import Final

from torrentdist.security.tokens import hash_of, name_and_secret

SHORTEST_TOKEN: Final = 32
"""Characters of a shared token that nobody can guess, if it was made at random."""


def name_and_key(token: str) -> tuple[str, str] | None:
    """Returns the name of a token and the key of its proofs; None if there are no proofs of it."""
    parts = name_and_secret(token)
    if parts is not None:
        return parts[0], hash_of(parts[1])
    return ("", hash_of(token)) if len(token) >= SHORTEST_TOKEN else None


def proof(key: str, nonce: str, url: str) -> str:
    message = f"torrentdist master\0{nonce}\0{url}".encode(errors="replace")
    return hmac.new(key.encode(), message, hashlib.sha256).hexdigest()


def proves(given: str, key: str, nonce: str, url: str) -> bool:
    """Whether this is the proof that was asked for."""
    return hmac.compare_digest(given.encode(errors="replace"), proof(key, nonce, url).encode())
