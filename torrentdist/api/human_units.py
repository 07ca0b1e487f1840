"""Formats sizes, durations, shares and rates for people.

Pure: no I/O.
"""

import math

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(count: float) -> str:
    """Formats a size: 1536 → 1.5 KiB."""
    value, unit = float(count), 0
    while value >= 1023.95 and unit < len(_BINARY) - 1:
        value /= 1024
        unit += 1
    return f"{value:.0f} B" if unit == 0 else f"{value:.1f} {_BINARY[unit]}"


def rate(bytes_per_second: float) -> str:
    return f"{size(bytes_per_second)}/s"


def duration(seconds: float | None) -> str:
    """Formats a duration: 3725 → 1h02m; None → ?."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return "?"
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    days, hours, minutes, secs = whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    if days:
        return f"{days}d{hours:02}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{secs:02}s" if minutes else f"{secs}s"


def percent(share: float) -> str:
    """Formats a share, rounded down, so that 100% means all of it."""
    return f"{math.floor(share * 100)}%"
