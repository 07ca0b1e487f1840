"""One output stream of a worker on disk, in a bounded number of files of bounded size.

Always: a file is named by the offset of its first byte in the stream; the oldest files go first. A
file begins with a whole line, unless that would make the one before it much too large.
Never: import anything but the standard library.
"""

import os

CHUNK = 65536
_MOST_OVER = 4 * CHUNK
"""Bytes beyond its size up to which a file grows while no next file can be begun."""


class OutputLog:
    """The files `NAME.OFFSET` in one directory."""

    def __init__(self, directory: str, name: str, max_bytes: int, max_files: int) -> None:
        self._directory, self._name = directory, name
        self._max_bytes, self._max_files = max_bytes, max_files
        offsets = self._offsets()
        self._start = offsets[-1] if offsets else 0
        self._fd = self._open(self._start)
        self._size = os.fstat(self._fd).st_size

    @property
    def room(self) -> int:
        """Number of bytes that `write` takes at once."""
        left = self._max_bytes - self._size
        return min(CHUNK, left if left > 0 else self._max_bytes)

    def write(self, data: bytes) -> None:
        """Appends `data`, or drops it if the disk is full: a full disk must not hold up the
        worker."""
        try:
            if self._size >= self._max_bytes:
                is_stuck = self._size >= self._max_bytes + _MOST_OVER
                end = 0 if is_stuck else data.find(b"\n") + 1
                if end or self._size >= self._max_bytes + CHUNK:
                    self._size += os.write(self._fd, data[:end])
                    self._rotate()
                    data = data[end:]
            self._size += os.write(self._fd, data)
        except OSError:
            pass

    def _rotate(self) -> None:
        """Begins the next file. Where that fails, the old one stays open, for the next attempt."""
        start = self._start + self._size
        opened = self._open(start)
        os.close(self._fd)
        self._fd, self._start, self._size = opened, start, 0
        for offset in self._offsets()[: -self._max_files]:
            os.unlink(self._path(offset))

    def _offsets(self) -> list[int]:
        parts = (name.partition(".") for name in os.listdir(self._directory))
        return sorted(int(rest) for name, _, rest in parts if name == self._name and rest.isdigit())

    def _open(self, start: int) -> int:
        return os.open(self._path(start), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{self._name}.{offset:015d}"
