"""The logger of each module. A line is an event with fields.

Always: warnings and errors go to stderr by default, and nothing else is shown. Stdout belongs to
the data of commands and of programs that use this package as a library. Every logger follows the
last call of `show_lines`.
Never: format a line that is not shown.
"""

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Show = Callable[[str, str, dict[str, Any]], None]
"""Writes one line, given its level, its event and its fields."""


def _show_plainly(level: str, event: str, fields: Mapping[str, Any]) -> None:
    said = [event, *(f"{key}={value}" for key, value in fields.items() if key != "exc_info")]
    print(f"{level}: {' '.join(said)}", file=sys.stderr)


class _Shown(NamedTuple):
    level: int
    show: Show


_shown = _Shown(logging.WARNING, _show_plainly)


def show_lines(show: Show, level: int) -> None:
    """Has `show` write all lines of this level and above, from now on."""
    global _shown
    _shown = _Shown(level, show)


class Logger:
    def debug(self, event: str, **fields: Any) -> None:
        self._say(logging.DEBUG, "debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._say(logging.INFO, "info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._say(logging.WARNING, "warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._say(logging.ERROR, "error", event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Logs an error with the exception that is being handled."""
        self._say(logging.ERROR, "error", event, {"exc_info": True, **fields})

    def _say(self, level: int, name: str, event: str, fields: dict[str, Any]) -> None:
        if level >= _shown.level:
            _shown.show(name, event, fields)


_LOGGER = Logger()


def get_logger() -> Logger:
    return _LOGGER
