"""Decides which users of a host can read the bundles of a store, by the modes of its directories.

Always: the other directories of a daemon are closed to other users, except that the group of the
events reads those. What belongs to another user stays as it is.
Never: change a bundle's own files. A user who reaches them may read them.
"""

import grp
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from torrentdist.model.errors import TorrentdistError

OWNER: Final = "owner"
EVERYONE: Final = "everyone"
GROUP: Final = "group "
"""Stands before the name or number of a group."""
EVENTS: Final = "events"
_SHOWN: Final = ("objects", "bundles")
"""The directories on the way to a bundle's files."""
_NAMING: Final = ("catalog.json", "catalog.log", "workers.json", "holds.json")
"""Files that name bundles, written by an earlier release with mode 0644."""


def admit_readers(data_dir: Path, readable_by: str) -> None:
    """Opens the bundles in `data_dir` to these readers, and closes everything else there."""
    passable = 0 if readable_by == OWNER else 0o011
    _set_mode(data_dir, stat.S_IMODE(data_dir.stat().st_mode) & 0o750 | passable)
    for path in data_dir.iterdir():
        if path.name in _SHOWN:
            admit_to(path, readable_by)
        elif path.is_dir() and not path.is_symlink():
            _set_mode(path, 0o750 if path.name == EVENTS else 0o700)
        elif path.name in _NAMING:
            _set_mode(path, 0o600)


def admit_to(directory: Path, readable_by: str) -> None:
    """Opens one directory to these readers, and closes it to all others."""
    group = _group_of(readable_by)
    if group is not None:
        _give_to_group(directory, group)
    _set_mode(directory, {OWNER: 0o700, EVERYONE: 0o755}.get(readable_by, 0o750))


def readers_of(data_dir: Path) -> str:
    """Returns who can read the bundles now, in the words of `store.readable_by`."""
    found = [(data_dir / name).stat() for name in _SHOWN]
    if not data_dir.stat().st_mode & stat.S_IXOTH:
        return OWNER
    if all(one.st_mode & stat.S_IXOTH for one in found):
        return EVERYONE
    return GROUP + _name_of(found[0].st_gid) if all(one.st_mode & stat.S_IXGRP for one in found) else OWNER


def _group_of(readable_by: str) -> int | None:
    if not readable_by.startswith(GROUP):
        return None
    name = readable_by.removeprefix(GROUP)
    try:
        return int(name) if name.isdigit() else grp.getgrnam(name).gr_gid
    except KeyError:
        raise _refused(f"this host has no group {name}") from None


def _name_of(group: int) -> str:
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)


def _give_to_group(path: Path, group: int) -> None:
    if path.stat().st_gid == group:
        return
    try:
        os.chown(path, -1, group)
    except PermissionError:
        detail = f"this daemon's user is not in the group {_name_of(group)}, so it cannot give it {path}"
        raise _refused(detail) from None


def _refused(detail: str) -> TorrentdistError:
    return TorrentdistError("config_invalid", origin="store.readable_by", detail=detail)


def _set_mode(path: Path, mode: int) -> None:
    with suppress(PermissionError):
        path.chmod(mode)
