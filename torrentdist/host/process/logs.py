"""Structured logs on stderr: readable on a terminal, JSON otherwise.

Always: a line that cannot be written, because the disk is full or the reader is slow, is dropped
and counted.
Never: print a secret. A value is masked if its key looks like that of a secret.
"""

import json
import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from torrentdist.log import show_lines
from torrentdist.model.configuration.config import LogConfig
from torrentdist.model.wording import printable
from torrentdist.standard_streams import lossy_stderr, protect_streams

_SECRET_KEYS = ("token", "secret", "password", "auth", "key")
_COLOURS = {"debug": 32, "info": 32, "warning": 33, "error": 31}
_EVENT_WIDTH = 30

Line = dict[str, Any]


def _is_secret(key: str) -> bool:
    return any(word in key.lower() for word in _SECRET_KEYS) and not key.lower().endswith("_file")


def _line(level: str, event: str, fields: Mapping[str, Any], bound: Mapping[str, str]) -> Line:
    """Returns everything that a line says, in the order in which it is said."""
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    said = {key: "***" if _is_secret(key) else value for key, value in fields.items() if key != "exc_info"}
    line: Line = {"timestamp": now, "level": level, "event": event, **bound, **said}
    if exc_info := fields.get("exc_info"):
        exc = exc_info if isinstance(exc_info, BaseException) else sys.exception()
        if exc is not None:
            line["exception"] = "".join(traceback.format_exception(exc)).rstrip()
    return line


def _as_json(line: Line) -> str:
    return json.dumps(line, default=repr)


def _for_terminal(line: Line) -> str:
    """Renders a line for a person. Control characters are escaped; JSON does so by itself."""
    exception = printable(line.pop("exception", ""), keep="\n")
    event, level, time = line.pop("event"), line.pop("level"), line.pop("timestamp")
    fields = " ".join(f"{key}={printable(str(value))}" for key, value in sorted(line.items()))
    mark = f"\x1b[{_COLOURS[level]}m{level:<9}\x1b[0m" if sys.stderr.isatty() else f"{level:<9}"
    text = f"{time} [{mark}] {printable(event, keep=chr(10)):<{_EVENT_WIDTH}} {fields}".rstrip()
    return f"{text}\n{exception}" if exception else text


def configure_logs(config: LogConfig, **bound: str) -> None:
    """Configures the process's logs. Every line contains `bound` (role, id)."""
    protect_streams()
    console = config.format == "console" or (config.format == "auto" and sys.stderr.isatty())
    render: Callable[[Line], str] = _for_terminal if console else _as_json

    def show(level: str, event: str, fields: Mapping[str, Any]) -> None:
        # One write per line, so that lines can be counted.
        sys.stderr.write(render(_line(level, event, fields, bound)) + "\n")
        sys.stderr.flush()

    show_lines(show, logging.getLevelNamesMapping()[config.level.upper()])
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    output = lossy_stderr()
    if output is not None:
        output.patience_ms = 0  # The event loop never waits.
        output.notice = lambda lines: render(_line("warning", "lines of the log were dropped", {"lines": lines}, bound))


def dropped_lines() -> int:
    """Returns the number of log lines that could not be written since the process began."""
    output = lossy_stderr()
    return 0 if output is None else output.dropped
