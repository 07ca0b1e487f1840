"""The names on the disk of one host that no sync of their directory followed, and their loss.

Always: a loss of power undoes changes from the newest to the oldest. What a sync of a directory
made durable stays, and with it every earlier change of the directories that it changed.
Never: undo anything else. unsynced.py loses bytes.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_RENAME, _LINK, _UNLINK, _RMTREE = os.rename, os.link, os.unlink, shutil.rmtree
MAKES = frozenset({"mkdir", "symlink", "link", "open"})


@dataclass(eq=False)
class _Change:
    folders: frozenset[str]
    """The directories whose names it changed."""
    undo: Callable[[], object]


class Names:
    """The changes of names on one disk that may still vanish."""

    def __init__(self, cellar: Path) -> None:
        """`cellar`: where what was deleted or replaced waits until that is durable."""
        self._cellar = cellar
        self._numbers = itertools.count()
        self._changes: list[_Change] = []

    def before(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], None] | None:
        """Called before a change. Returns what notes it, once it is done."""
        if name in ("rename", "replace"):
            source = _full(args[0], kwargs.get("src_dir_fd"))
            target = _full(args[1], kwargs.get("dst_dir_fd"))
            old = self._keep(target)
            return lambda: self._note({source, target}, lambda: self._back(target, source, old))
        if name in ("unlink", "remove", "rmdir"):
            path = _full(args[0], kwargs.get("dir_fd"))
            old = self._keep(path)
            return lambda: self._note({path}, lambda: self._restore(path, old))
        if name in MAKES:
            made = _full(args[1] if name in ("symlink", "link") else args[0], kwargs.get("dir_fd"))
            if os.path.lexists(made):
                return None
            return lambda: self._note({made}, lambda: _remove(made))
        return None

    def _note(self, paths: set[str], undo: Callable[[], object]) -> None:
        self._changes.append(_Change(frozenset(map(os.path.dirname, paths)), undo))

    def _keep(self, path: str) -> str | None:
        """Keeps what is about to lose this name. Returns where; None: nothing is there."""
        if not os.path.lexists(path):
            return None
        self._cellar.mkdir(exist_ok=True)
        place = str(self._cellar / str(next(self._numbers)))
        if os.path.isdir(path) and not os.path.islink(path):
            Path(place).mkdir()  # A directory is deleted, or replaced, only if it is empty.
        else:
            _LINK(path, place, follow_symlinks=False)
        return place

    def _back(self, target: str, source: str, old: str | None) -> None:
        _RENAME(target, source)
        self._restore(target, old)

    @staticmethod
    def _restore(path: str, old: str | None) -> None:
        if old is not None and not os.path.lexists(path):
            _RENAME(old, path)

    # what makes changes durable

    def synced(self, folder: str) -> None:
        """Makes the names in a directory durable."""
        durable, later = {folder}, []
        for change in reversed(self._changes):
            if change.folders & durable:
                durable |= change.folders
            else:
                later.append(change)
        self._changes = later[::-1]

    def all_synced(self) -> None:
        self._changes.clear()

    def lose(self, rng: random.Random) -> int:
        """Does what a loss of power does. Returns how many changes are lost."""
        kept = rng.choice([0, len(self._changes), rng.randint(0, len(self._changes))])
        lost = self._changes[kept:]
        self._changes.clear()
        for change in reversed(lost):
            with suppress(FileNotFoundError):  # A directory above has another name by now.
                change.undo()
        if self._cellar.exists():
            _RMTREE(self._cellar)
        return len(lost)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        for folder, _, _ in os.walk(path):
            os.chmod(folder, 0o700)
        _RMTREE(path)
    else:
        _UNLINK(path)


def _full(path: Any, dir_fd: int | None) -> str:
    named = os.fsdecode(path)
    return os.path.abspath(named if dir_fd is None else os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), named))
