"""Structured logs on stderr: readable on a terminal, JSON otherwise.

Always: a line that cannot be written, because the disk is full or the reader is slow, is dropped
and counted.
Never: print a secret. A value is masked if its key looks like that of a secret.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from torrentdist.model.configuration.config import LogConfig
from torrentdist.model.wording import printable
from torrentdist.standard_streams import lossy_stderr, protect_streams

_SECRET_KEYS = ("token", "secret", "password", "auth", "key")


def _mask(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in event:
        if any(word in key.lower() for word in _SECRET_KEYS) and not key.lower().endswith("_file"):
            event[key] = "***"
    return event


def _make_printable(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escapes control characters for a terminal. JSON does so by itself."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = printable(value, keep="\n" if key in ("event", "exception") else "")
    return event


def configure_logs(config: LogConfig, **bound: str) -> None:
    """Configures the process's logs. Every line contains `bound` (role, id)."""
    protect_streams()
    console = config.format == "console" or (config.format == "auto" and sys.stderr.isatty())
    level = logging.getLevelNamesMapping()[config.level.upper()]
    render: Any = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    shown = [_make_printable] if console else []
    processors = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _mask,
        structlog.processors.format_exc_info,
        *shown,
        render,
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(level),
        # One write per line, so that lines can be counted.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**bound)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
    output = lossy_stderr()
    if output is not None:
        output.patience_ms = 0  # The event loop never waits.
        output.notice = lambda lines: _rendered(processors, lines)


def dropped_lines() -> int:
    """Returns the number of log lines that could not be written since the process began."""
    output = lossy_stderr()
    return 0 if output is None else output.dropped


def _rendered(processors: list[Any], lines: int) -> str:
    event: Any = {"event": "lines of the log were dropped", "lines": lines}
    for process in processors:
        event = process(None, "warning", event)
    return str(event)
