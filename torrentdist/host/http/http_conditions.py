"""Decides what a request for content gets, from its conditions and its range (RFC 9110, sections 13
and 14).

Always: conditions are evaluated in the order of section 13.2.2; a date, range or unit that is not
understood counts as not sent; more than one range is answered with the whole content, which the RFC
allows.
Never: I/O or a clock.
"""

import calendar
import re
from collections.abc import Mapping, Sequence

import msgspec

FIELDS = ("if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range", "range")


class Representation(msgspec.Struct, frozen=True):
    """The content that exists under a URL."""

    tag: str
    """The strong entity tag, without its quotes."""
    size: int | None = None
    """None: known only at its end, so it has no ranges."""
    modified: int | None = None
    """Seconds since 1970; None: not known."""


class Whole(msgspec.Struct, frozen=True):
    pass


class Part(msgspec.Struct, frozen=True):
    start: int
    end: int
    """The first byte that is not part of it."""


class NotModified(msgspec.Struct, frozen=True):
    pass


class Failed(msgspec.Struct, frozen=True):
    """The condition of this field does not hold."""

    field: str


class NotSatisfiable(msgspec.Struct, frozen=True):
    range: str


Decision = Whole | Part | NotModified | Failed | NotSatisfiable


def decide(method: str, fields: Mapping[str, Sequence[str]], shown: Representation) -> Decision:
    """Returns what to answer to `method`, which is GET or HEAD. `fields`: the lines of each field
    of FIELDS that was sent, by its lower-case name."""
    sent = {name: ", ".join(lines).strip(" \t") for name, lines in fields.items() if lines}
    return _precondition(sent, shown) or _range(method, sent, shown)


def _precondition(sent: Mapping[str, str], shown: Representation) -> Decision | None:
    match, until = sent.get("if-match"), _date_in(sent, "if-unmodified-since")
    if match is not None and not _names(match, shown.tag, weakly=False):
        return Failed("If-Match")
    if match is None and until is not None and shown.modified is not None and shown.modified > until:
        return Failed("If-Unmodified-Since")
    if (none_match := sent.get("if-none-match")) is not None:
        return NotModified() if _names(none_match, shown.tag, weakly=True) else None
    since = _date_in(sent, "if-modified-since")
    unchanged = since is not None and shown.modified is not None and shown.modified <= since
    return NotModified() if unchanged else None


def _range(method: str, sent: Mapping[str, str], shown: Representation) -> Decision:
    text = sent.get("range")
    if text is None or method != "GET" or shown.size is None or not _range_applies(sent, shown):
        return Whole()
    ranges = _byte_ranges(text)
    if ranges is None:
        return Whole()
    if shown.size == 0 and any(first is None and last for first, last in ranges):
        return Whole()  # the last bytes of nothing are nothing, and no Content-Range can say that
    parts = [part for part in (_part(first, last, shown.size) for first, last in ranges) if part is not None]
    if not parts:
        return NotSatisfiable(text)
    return parts[0] if len(parts) == 1 else Whole()


def _range_applies(sent: Mapping[str, str], shown: Representation) -> bool:
    condition = sent.get("if-range")
    if condition is None:
        return True
    if '"' in condition:
        return condition == f'"{shown.tag}"'  # strong comparison: a weak tag never matches
    date = parse_date(condition)
    return date is not None and date == shown.modified


# entity tags

_TAG = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAGS = re.compile(rf"[ \t,]*(?:{_TAG}[ \t]*(?:,[ \t]*)*)*")
_EACH_TAG = re.compile(_TAG)


def _names(text: str, tag: str, *, weakly: bool) -> bool:
    """Returns whether a list of entity tags names this one. A malformed list matches nothing."""
    if text == "*":
        return True
    if not _TAGS.fullmatch(text):
        return False
    given = _EACH_TAG.findall(text)
    return f'"{tag}"' in ([one.removeprefix("W/") for one in given] if weakly else given)


# ranges

_RANGES = re.compile(r"bytes=(.*)", re.IGNORECASE)
_RANGE = re.compile(r"(\d*)-(\d*)", re.ASCII)
_FAR = 10**18


def _byte_ranges(text: str) -> list[tuple[int | None, int | None]] | None:
    """Returns the first and last position of each range; None if they cannot be parsed. In a range
    without a first position, the second number counts the last bytes."""
    unit = _RANGES.fullmatch(text)
    if unit is None:
        return None
    found: list[tuple[int | None, int | None]] = []
    for item in filter(None, (part.strip(" \t") for part in unit[1].split(","))):
        match = _RANGE.fullmatch(item)
        if match is None or item == "-":
            return None
        first, last = (_position(digits) if digits else None for digits in match.groups())
        if first is not None and last is not None and last < first:
            return None
        found.append((first, last))
    return found or None


def _position(digits: str) -> int:
    """Parses a position, capped at _FAR because Python refuses very long numbers."""
    significant = digits.lstrip("0") or "0"
    return int(significant) if len(significant) <= len(str(_FAR)) else _FAR


def _part(first: int | None, last: int | None, size: int) -> Part | None:
    """Returns the part of the content that a range names; None if it names no byte."""
    start = first if first is not None else max(0, size - (last or 0))
    end = size if first is None or last is None else min(size, last + 1)
    return Part(start, end) if start < end else None


# dates

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH, _TIME = rf"(?P<month>{'|'.join(_MONTHS)})", r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_DATES = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        rf"[A-Z][a-z]{{2}}, (?P<day>\d\d) {_MONTH} (?P<year>\d{{4}}) {_TIME} GMT",
        rf"[A-Z][a-z]{{5,8}}, (?P<day>\d\d)-{_MONTH}-(?P<year>\d\d) {_TIME} GMT",
        rf"[A-Z][a-z]{{2}} {_MONTH} (?P<day>[ \d]\d) {_TIME} (?P<year>\d{{4}})",
    )
)
"""The three forms that a recipient has to accept, newest first."""


def _date_in(sent: Mapping[str, str], name: str) -> int | None:
    return parse_date(sent[name]) if name in sent else None


def parse_date(text: str) -> int | None:
    """Returns an HTTP date in seconds since 1970; None if the text is no HTTP date."""
    match = next(filter(None, (form.fullmatch(text) for form in _DATES)), None)
    if match is None:
        return None
    year, day = int(match["year"]), int(match["day"])
    if len(match["year"]) == 2:
        year += 2000 if year < 70 else 1900
    hour, minute, second = (int(match[name]) for name in ("hour", "minute", "second"))
    month = _MONTHS.index(match["month"]) + 1
    is_valid = year >= 1 and 1 <= day <= calendar.monthrange(year, month)[1] and hour < 24 and minute < 60
    return calendar.timegm((year, month, day, hour, minute, second)) if is_valid and second <= 60 else None
