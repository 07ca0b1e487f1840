"""Small files in the user's cache directory, in which a command stores what it learned for the next
command.

One file per configured list contains the masters that answered last. Another contains the newest
transaction seen of each cluster.
Always: clusters never mix, and if two commands end at once, the transactions of both are stored. A
missing or damaged file only costs time, or the guarantee that the next read includes the user's
last change.
Never: raise.
"""

import contextlib
import fcntl
import hashlib
import os
import time
from pathlib import Path

import msgspec

from torrentdist.client.masters.leader_search import learned
from torrentdist.model.wire.view import decode_json

MAX_AGE_SECS = 24 * 3600.0
"""After a day without confirmation, an address may belong to another machine."""

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
        found = decode_json(path.read_bytes(), Remembered)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return Remembered()
    masters = list(learned(found.masters))
    return Remembered(masters=masters, leader=found.leader, cluster=found.cluster)


def remember(path: Path, what: Remembered) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(path, msgspec.json.encode(what))


def remember_names(path: Path, names: list[str]) -> None:
    """Stores names for the next completion of a command line."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _replace(path, msgspec.json.encode(names))


def recall_seen(directory: Path) -> dict[str, int]:
    """Returns the newest transaction seen, by cluster."""
    try:
        return decode_json((directory / SEEN).read_bytes(), dict[str, int])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def remember_seen(directory: Path, cluster: str, zxid: int, instead_of: int) -> None:
    """Stores `zxid` unless another command has stored a newer one meanwhile.

    A number below `instead_of`, the one with which we began, replaces it: then the cluster's
    ZooKeeper has restarted its count.
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
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
