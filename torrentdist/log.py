"""The logger of each module, and the default treatment of log lines.

Always: warnings and errors go to stderr by default, and nothing else is shown. Stdout belongs to
the data of commands and of programs that use this package as a library.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog


def get_logger() -> Any:
    """Returns a logger that follows the program's configuration of structlog, even a later one."""
    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        )
    return structlog.get_logger()
