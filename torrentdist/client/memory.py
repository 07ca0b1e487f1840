"""The masters that a client has seen, kept in a small file of the user's cache directory.

Always holds: it only saves a round of asking; a missing, damaged or unwritable file changes nothing but that. What is
remembered belongs to one list of configured masters, so that two clusters never mix. Must not do: raise.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from pathlib import Path

import msgspec

from torrentdist.client.failover import learned

MAX_AGE_SECS = 24 * 3600.0
"""Addresses that nobody confirmed for a day may belong to somebody else by now."""


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    masters: list[str] = []
    leader: str | None = None


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base.startswith("/") else Path(os.path.expanduser("~/.cache"))) / "torrentdist"


def memory_path(configured: list[str]) -> Path:
    key = hashlib.sha256("\n".join(sorted(configured)).encode()).hexdigest()[:16]
    return cache_dir() / f"masters-{key}.json"


def recall(path: Path) -> Remembered:
    try:
        if time.time() - path.stat().st_mtime > MAX_AGE_SECS:
            return Remembered()
        found = msgspec.json.decode(path.read_bytes(), type=Remembered)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return Remembered()
    masters = list(learned(found.masters))
    return Remembered(masters=masters, leader=found.leader)


def remember(path: Path, what: Remembered) -> None:
    """Written beside and renamed, so that another command never reads half of it."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(what))
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
