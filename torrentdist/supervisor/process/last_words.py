"""Summarizes in one line why a worker's run failed, from the end of its stderr.

Always: the line comes from this run alone, has a bounded length, and contains no terminal control
characters.
Never: decide what happens to the worker. Functions that take a directory block: call them in
threads.
"""

from pathlib import Path

from torrentdist.model.wording import printable
from torrentdist.supervisor.process.output_files import Stream, read_output, span_of
from torrentdist.supervisor.process.spark_applications import reason_in

TAIL_BYTES = 64 * 1024
MOST_CHARACTERS = 400


def end_of_stderr(home: Path) -> int:
    """Returns the offset at which the next run's stderr begins."""
    span = span_of(home, Stream.STDERR)
    return 0 if span is None else span.end


def why_failed(home: Path, since: int, *, spark: bool) -> str:
    """Returns the last line that was written from `since` on, or for Spark the last error that it
    names. Empty if nothing was written."""
    try:
        stderr = _tail(home, since).decode(errors="replace")
    except OSError:
        return ""
    return printable_line(reason_in(stderr) if spark else "") or last_line(stderr)


def last_line(text: str) -> str:
    """Returns the last line of `text` that is not blank, made printable."""
    lines = (printable_line(line) for line in reversed(text.splitlines()))
    return next(filter(None, lines), "")


def printable_line(text: str) -> str:
    """Returns `text` as one line, with control characters escaped and cut to a bounded length."""
    escaped = printable(text.strip()[: MOST_CHARACTERS + 1])
    return escaped if len(escaped) <= MOST_CHARACTERS else escaped[: MOST_CHARACTERS - 1] + "…"


def _tail(home: Path, since: int) -> bytes:
    """Returns at most TAIL_BYTES from the end, which may span several files."""
    end = end_of_stderr(home)
    at, found = max(since, end - TAIL_BYTES), b""
    while at < end and (piece := read_output(home, Stream.STDERR, at, end - at)).data:
        at, found = piece.end, found + piece.data
    return found
