"""Gives the files of a copy the modes that its bundle tells and its user's umask leaves.

Always: a copy can be read by nobody whom its user's umask shuts out.
Never: change anything but modes.
"""

import os
import stat
from pathlib import Path

from torrentdist.bundle.files.mode_runs import EXECUTABLE, own_modes
from torrentdist.bundle.metafile import Metafile

_OTHERS = 0o077


def finish_modes(meta: Metafile, content: bytes) -> None:
    """Sets the modes of a copy. A store's files are read-only because they are shared; these belong
    to the user."""
    left = ~(_umask() & _OTHERS)
    for directory in ("", *meta.directories):
        os.chmod(content + b"/" + directory.encode(), EXECUTABLE & left)
    for file, mode in zip(meta.files, own_modes(meta.files, meta.modes), strict=True):
        os.chmod(content + b"/" + file.path.encode(), mode & left)


def owner_only_files(meta: Metafile, path: Path) -> int:
    """Returns how many files of the bundle at `path` only their owner can read. Blocks briefly."""
    places = [path] if meta.single_file else [path / file.path for file in meta.files]
    return sum(_is_closed(place) for place in places)


def _is_closed(path: Path) -> bool:
    try:
        return not os.stat(path).st_mode & (stat.S_IRGRP | stat.S_IROTH)
    except OSError:
        return False


def _umask() -> int:
    """Returns the umask of this process, which os.umask() cannot tell without changing it for all
    threads."""
    with open("/proc/self/status") as told:
        return next(int(line.split()[1], 8) for line in told if line.startswith("Umask:"))
