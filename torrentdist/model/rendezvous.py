"""Rendezvous hashing: the same key orders the same choices in the same way everywhere.

Always: keys are spread evenly over the choices. If a choice disappears, only the keys that had it
first change theirs.
"""

import hashlib
from collections.abc import Iterable


def rendezvous(choices: Iterable[str], key: str) -> list[str]:
    return sorted(choices, key=lambda choice: hashlib.blake2b(f"{key} {choice}".encode(), digest_size=8).digest())
