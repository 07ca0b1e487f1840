"""Structured logs: readable on a terminal, JSON otherwise, always to stderr.

Must not do: print a secret. Keys that look like one are masked whatever their value is.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from torrentdist.model.config import LogConfig

_SECRET_KEYS = ("token", "secret", "password", "auth", "key")


def _mask(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in event:
        if any(word in key.lower() for word in _SECRET_KEYS) and not key.lower().endswith("_file"):
            event[key] = "***"
    return event


def configure_logs(config: LogConfig, **bound: str) -> None:
    """Set up the process's logs; `bound` stands on every line (role, id)."""
    console = config.format == "console" or (config.format == "auto" and sys.stderr.isatty())
    level = logging.getLevelNamesMapping()[config.level.upper()]
    render: Any = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _mask,
            structlog.processors.format_exc_info,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**bound)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s %(message)s")
