"""Rendezvous hashing: everybody who names the same key puts the same choices into the same order.

Always holds: keys spread evenly over the choices, and one that goes moves only the keys that it was first for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def rendezvous(choices: Iterable[str], key: str) -> list[str]:
    return sorted(choices, key=lambda choice: hashlib.blake2b(f"{key} {choice}".encode(), digest_size=8).digest())
