"""Deletes trees with directories that are read-only, as users' content may have them.

Always: no symlink is followed. Never: call it on an event loop, because it blocks.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path


def delete(path: Path) -> None:
    """Removes a link, a file or a tree. Raises OSError if something of it stays."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    _make_writable_below(path)
    shutil.rmtree(path)


def delete_what_goes(path: Path) -> None:
    """Removes as much of a tree as this user may."""
    _make_writable_below(path)
    shutil.rmtree(path, ignore_errors=True)


def _make_writable_below(path: Path) -> None:
    for folder, _, _ in os.walk(path):
        with suppress(OSError):  # It is another user's, and may be empty.
            os.chmod(folder, 0o700)
