"""Writes small files into the content of an arriving bundle.

Always: a file is written anew, never into what is there. Only a file with the right bytes and mode
stays. What stands in the way is removed.
Never: follow a symlink below the top, hash, or make anything durable.
"""

import os
import shutil
import stat
from pathlib import Path
from typing import Self

from torrentdist.bundle.file_tree import FileEntry
from torrentdist.bundle.metafile import CONTENT

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_MODE = 0o444
EXECUTABLE_MODE = 0o555


class SmallFileWriter:
    """Writes below `home`/content. The directory of the last file stays open."""

    def __init__(self, home: Path) -> None:
        (home / CONTENT).mkdir(exist_ok=True)
        self._top = top = os.fsencode(home / CONTENT)
        self._made: set[str] = {""}
        self._here = ""
        self._fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def write(self, file: FileEntry, data: bytes) -> None:
        directory, _, name = file.path.rpartition("/")
        if directory != self._here:
            self._enter(directory)
        mode = EXECUTABLE_MODE if file.executable else FILE_MODE
        try:
            fd = os.open(name, _WRITE, mode, dir_fd=self._fd)
        except FileExistsError:
            if self._holds(name, data, mode):
                return
            self._clear(name)
            fd = os.open(name, _WRITE, mode, dir_fd=self._fd)
        try:
            if data and os.write(fd, data) != len(data):
                raise OSError(28, os.strerror(28))
        finally:
            os.close(fd)

    def _holds(self, name: str, data: bytes, mode: int) -> bool:
        """Whether a file is there with these bytes, as another bundle of the store has it."""
        try:
            fd = os.open(name, _READ, dir_fd=self._fd)
        except OSError:
            return False
        try:
            found = os.fstat(fd)
            return found.st_mode == stat.S_IFREG | mode and os.read(fd, len(data) + 1) == data
        finally:
            os.close(fd)

    def _clear(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._fd)
        except IsADirectoryError:
            shutil.rmtree(name, dir_fd=self._fd)

    def _enter(self, directory: str) -> None:
        self._make(directory)
        path = self._top + b"/" + directory.encode()
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        os.close(self._fd)
        self._fd, self._here = fd, directory

    def _make(self, directory: str) -> None:
        """Makes a directory and its parents. What is no directory there is removed."""
        if directory in self._made:
            return
        self._make(directory.rpartition("/")[0])
        path = self._top + b"/" + directory.encode()
        try:
            os.mkdir(path, 0o755)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                os.unlink(path)
                os.mkdir(path, 0o755)
        self._made.add(directory)
