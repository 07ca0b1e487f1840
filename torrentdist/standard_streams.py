"""Keeps a command or a daemon running when its messages cannot be written.

Always: descriptors 0 to 2 are open, so that no file or socket of ours takes their place. Lines that
stderr cannot take are dropped and counted. The next line that can be written follows a notice with
the number of missing lines.
Never: let a failed write to stderr raise. Stdout carries data, so its errors stay errors.
"""

from __future__ import annotations

import io
import os
import select
import stat
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

FOREVER_MS = -1


def _plain_notice(lines: int) -> str:
    return f"{lines} {'line' if lines == 1 else 'lines'} could not be written here"


class LossyOutput(io.RawIOBase):
    """Writes to a descriptor, and drops lines that the descriptor does not accept."""

    def __init__(self, fd: int) -> None:
        self.dropped = 0
        """Lines dropped since the process began."""
        self.notice: Callable[[int], str] = _plain_notice
        """Returns the notice for a number of missing lines."""
        self.patience_ms = FOREVER_MS
        """Longest wait for a slow reader, such as a pipe, in milliseconds."""
        self._fd = fd
        self._untold = 0
        self._line_is_cut = False
        self._turn = threading.RLock()  # A signal handler may write during another write.

    def write(self, data: ReadableBuffer, /) -> int:
        text = bytes(data)
        with self._turn:
            if self._untold and self._put(self.notice(self._untold).encode() + b"\n"):
                self._untold = 0
            if self._untold or not self._put(text):
                lines = max(1, text.count(b"\n"))
                self.dropped += lines
                self._untold += lines
        return len(text)

    def _put(self, text: bytes) -> bool:
        if self._line_is_cut:
            text = b"\n" + text
        written = 0
        try:
            while written < len(text):
                written += os.write(self._fd, text[written : written + self._room()])
        except OSError:
            self._line_is_cut = self._line_is_cut if written == 0 else text[written - 1 : written] != b"\n"
            return False
        self._line_is_cut = False
        return True

    def _room(self) -> int:
        """Returns how many bytes can be written now without waiting."""
        if stat.S_ISREG(os.fstat(self._fd).st_mode):
            return 1 << 30
        ready = select.poll()
        ready.register(self._fd, select.POLLOUT)
        if not ready.poll(self.patience_ms):
            raise BlockingIOError("the reader is behind")
        return select.PIPE_BUF

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)


def protect_streams() -> None:
    """Replaces this process's streams by ones that never end it. A stream that a caller has
    replaced stays."""
    _open_descriptors()
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # for as long as this process lives
    if sys.stderr is None or sys.stderr is sys.__stderr__:
        encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
        sys.stderr = io.TextIOWrapper(
            LossyOutput(2),
            encoding=encoding,
            errors="backslashreplace",
            line_buffering=True,
            write_through=True,
        )


def lossy_stderr() -> LossyOutput | None:
    """Returns the output behind sys.stderr; None if a caller has replaced it."""
    output = getattr(sys.stderr, "buffer", None)
    return output if isinstance(output, LossyOutput) else None


def _open_descriptors() -> None:
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            # This gets the lowest free number, which is the missing one.
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(nowhere, True)
