"""Which modes files have: those of a bundle keep one bit, and a copy has what its user's umask
leaves.

Always: a copy that a user makes can be read by nobody whom the user's umask shuts out.
Never: change anything but modes.
"""

import os
import stat
from pathlib import Path

from torrentdist.bundle.metafile import Metafile

EXECUTABLE_COPY, COPY = 0o755, 0o644
_OTHERS = 0o077


def finish_modes(meta: Metafile, content: bytes) -> None:
    """Makes the files of a copy writable for its user, and closes them to whom the umask closes new
    files. A store's files are read-only because they are shared; these belong to the user."""
    left = ~(_umask() & _OTHERS)
    for directory in ("", *meta.directories):
        os.chmod(content + b"/" + directory.encode(), EXECUTABLE_COPY & left)
    for file in meta.files:
        mode = EXECUTABLE_COPY if file.executable else COPY
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
