"""Reads sizes, durations and shares as people write them, in options and in forms.

Pure.
Always: the error for a refused input names the accepted forms.
"""

import math
import re

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])", re.ASCII)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKMGTP]?)(iB|B)?(?:/s)?", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)


def parse_duration(text: str) -> float:
    """Parses 90, 90s, 5m, 1h30m or 7d into seconds. Raises ValueError for other text."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError("give a duration as 90, 90s, 5m, 1h30m or 7d")
    return math.fsum(float(number) * _UNITS[unit] for number, unit in parts)


def parse_share(text: str) -> float:
    """Parses 100%, 50%, 0.5, 1 or 0 into 0.0 to 1.0. Raises ValueError for other text."""
    number, is_percent = (text.strip()[:-1], True) if text.strip().endswith("%") else (text.strip(), False)
    share = float(number) / (100 if is_percent else 1) if _NUMBER.fullmatch(number) else math.nan
    if not 0 <= share <= 1:
        raise ValueError("give a share as 100%, 50%, 0.5 or 0")
    return share


def parse_size(text: str) -> float:
    """Parses 500, 64k, 10M, 10MiB, 5GB or 10M/s into bytes. Raises ValueError for other text."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError("give a size as 500, 64k, 10M, 10MiB or 5GB")
    number, prefix, unit = found.groups()
    step = 1000 if unit == "B" else 1024
    return int(float(number) * step ** " kMGTP".index({"": " ", "K": "k"}.get(prefix, prefix)))
