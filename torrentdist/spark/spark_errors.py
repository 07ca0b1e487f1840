"""Errors of Spark as errors of ours: one line that names the problem, instead of a Java stack
trace."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame

from torrentdist.model.errors import TorrentdistError


def found_lines(read: Callable[[], DataFrame], path: str) -> DataFrame:
    """Calls `read`. A path that Spark does not find is `events_not_found`."""
    try:
        return read()
    except AnalysisException as exc:
        raise TorrentdistError("events_not_found", path=path, detail=_first_line(exc)) from None


@contextlib.contextmanager
def spark_errors(path: str) -> Iterator[None]:
    """Raises errors of Spark as `report_failed`, with one line instead of a Java stack trace."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as exc:
        raise TorrentdistError("report_failed", path=path, detail=_cause(exc)) from None


def _cause(exc: Exception) -> str:
    """Returns Java's innermost exception, which names the problem."""
    text = str(exc)
    causes = [line for line in text.splitlines() if line.startswith("Caused by: ")]
    if causes:
        return causes[-1].removeprefix("Caused by: ")
    lines: Sequence[str] = [line.strip() for line in text.splitlines() if line.strip()]
    said = (line.removeprefix(": ") for line in lines if line.startswith(": "))
    return next(said, lines[0] if lines else type(exc).__name__)


def _first_line(exc: Exception) -> str:
    return str(exc).splitlines()[0]
