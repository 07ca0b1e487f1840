"""Tells in one line why a run of a worker failed, from the end of what it wrote to stderr.

Always: one line of this run alone, bounded in length, without a character that can steer a
terminal. Never: decide what becomes of the worker. The functions that take a directory block: call
them in threads.
"""

from __future__ import annotations

from pathlib import Path

from torrentdist.model.wording import printable
from torrentdist.supervisor.process.output_files import Stream, read_output, span_of
from torrentdist.supervisor.process.spark_applications import reason_in

TAIL_BYTES = 64 * 1024
MOST_CHARACTERS = 400


def end_of_stderr(home: Path) -> int:
    """Offset at which the next run's stderr begins."""
    span = span_of(home, Stream.STDERR)
    return 0 if span is None else span.end


def why_failed(home: Path, since: int, *, spark: bool) -> str:
    """The last line that was written from `since` on; for Spark the last error that it names.
    Empty: nothing was."""
    try:
        stderr = _tail(home, since).decode(errors="replace")
    except OSError:
        return ""
    return printable_line(reason_in(stderr) if spark else "") or last_line(stderr)


def last_line(text: str) -> str:
    """The last line of `text` that is not blank, made printable."""
    lines = (printable_line(line) for line in reversed(text.splitlines()))
    return next(filter(None, lines), "")


def printable_line(text: str) -> str:
    """`text` on one line: control characters are escaped, and what is too long is cut."""
    escaped = printable(text.strip()[: MOST_CHARACTERS + 1])
    return escaped if len(escaped) <= MOST_CHARACTERS else escaped[: MOST_CHARACTERS - 1] + "…"


def _tail(home: Path, since: int) -> bytes:
    """At most TAIL_BYTES from the end, over as many files as they lie in."""
    end = end_of_stderr(home)
    at, found = max(since, end - TAIL_BYTES), b""
    while at < end and (piece := read_output(home, Stream.STDERR, at, end - at)).data:
        at, found = piece.end, found + piece.data
    return found
