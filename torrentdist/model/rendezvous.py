"""Rendezvous hashing: the same key puts the same choices into the same order everywhere.

Always: keys spread evenly over the choices. A choice that goes moves only the keys that had it
first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def rendezvous(choices: Iterable[str], key: str) -> list[str]:
    return sorted(choices, key=lambda choice: hashlib.blake2b(f"{key} {choice}".encode(), digest_size=8).digest())
