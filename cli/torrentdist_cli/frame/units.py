"""Formats sizes, durations, shares and rates for people, and reads them from options.

Always: the error for a refused input names the accepted forms.
Pure: no I/O.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from torrentdist.api.human_units import duration, percent, rate, size
from torrentdist.model.policies.written_amounts import parse_duration, parse_share, parse_size

if TYPE_CHECKING:
    from torrentdist.model.wire.transfer_messages import Sources

__all__ = [
    "DURATION",
    "SHARE",
    "SIZE",
    "duration",
    "origins",
    "parse_duration",
    "parse_share",
    "parse_size",
    "percent",
    "rate",
    "size",
    "unicode_path",
]


def unicode_path(path: str | os.PathLike[str]) -> str:
    """Returns the path as valid Unicode, as JSON needs it. An invalid byte becomes U+FFFD."""
    return os.fsencode(path).decode("utf-8", "replace")


if TYPE_CHECKING:  # generic in the stubs of new releases only
    _ParamType = click.ParamType[float]
else:
    _ParamType = click.ParamType


class _Parsed(_ParamType):
    def __init__(self, name: str, parse: Callable[[str], float]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as exc:
            self.fail(f"{value!r}: {exc}", param, ctx)


DURATION = _Parsed("duration", parse_duration)
SHARE = _Parsed("share", parse_share)
SIZE = _Parsed("size", parse_size)


def origins(sources: Sources) -> str:
    """Formats the sources of a transfer: `1.0 GiB from masters, 3.0 GiB from peers`."""
    parts = {
        "from masters": sources.masters,
        "from peers": sources.peers,
        "from the plug-in": sources.plugin,
        "already here": sources.local,
    }
    return ", ".join(f"{size(count)} {where}" for where, count in parts.items() if count) or "nothing moved"
