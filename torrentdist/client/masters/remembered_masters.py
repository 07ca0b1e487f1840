"""Small files in the user's cache directory, in which one command leaves what it learned for the
next one.

One file for each configured list has the masters that answered last. Another has the newest
transaction that was seen of each cluster.
Always: two clusters never mix, and two commands that end at once both have their transactions
remembered. A missing or damaged file only costs time, or the promise that the next read shows the
user's last change.
Never: it raises.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
from pathlib import Path

import msgspec

from torrentdist.client.masters.leader_search import learned

MAX_AGE_SECS = 24 * 3600.0
"""An address that was not confirmed for a day may belong to another machine by now."""

MAX_CLUSTERS = 64
SEEN = "seen.json"


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    masters: list[str] = []
    leader: str | None = None
    cluster: str = ""
    """The id of the cluster that these masters serve."""


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
    return Remembered(masters=masters, leader=found.leader, cluster=found.cluster)


def remember(path: Path, what: Remembered) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(path, msgspec.json.encode(what))


def recall_seen(directory: Path) -> dict[str, int]:
    """Returns the newest transaction seen, by cluster."""
    try:
        return msgspec.json.decode((directory / SEEN).read_bytes(), type=dict[str, int])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def remember_seen(directory: Path, cluster: str, zxid: int, instead_of: int) -> None:
    """Remembers `zxid` unless another command has remembered a newer one meanwhile.

    A number below `instead_of`, the one that we began with, replaces it: the cluster's ZooKeeper
    counts anew.
    """
    with contextlib.suppress(OSError):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (directory / f"{SEEN}.lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            seen = recall_seen(directory)
            if zxid < instead_of == seen.get(cluster, 0) or zxid > seen.get(cluster, 0):
                others = [(id_, found) for id_, found in seen.items() if id_ != cluster]
                _replace(directory / SEEN, msgspec.json.encode(dict([*others, (cluster, zxid)][-MAX_CLUSTERS:])))


def _replace(path: Path, data: bytes) -> None:
    """Writes a temporary file and renames it, so that another command never reads half of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
