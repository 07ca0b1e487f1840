"""Formats numbers for people: times, sizes, counts and shares, each with its unit."""

BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
HOURS_FROM = 7200.0
"""Times of at least this many seconds are shown in hours."""
MINUTES_FROM = 120.0
"""Times of at least this many seconds, and below HOURS_FROM, are shown in minutes."""


def seconds(value: float) -> str:
    if value >= HOURS_FROM:
        return f"{value / 3600:.1f} h"
    if value >= MINUTES_FROM:
        return f"{value / 60:.1f} min"
    return f"{value:.0f} s" if value >= 10 or value == int(value) else f"{value:.2g} s"


def size(value: float) -> str:
    for unit in BINARY_UNITS[:-1]:
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} PiB"


def count(value: float) -> str:
    return f"{value:,.0f}"


def percent(value: float) -> str:
    """Returns a share (0 to 1) in per cent. Only zero is 0%, and only one is 100%."""
    return f"{value:.0%}" if value in (0, 1) or 0.01 <= value <= 0.995 else f"{value:.1%}"
