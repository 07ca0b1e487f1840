"""Lays out values as a table that fits the terminal, or without a limit for a file or a program.

Always: a line is at most as wide as the terminal, a value is not broken over lines, and values that
differ look different. If there is too little room, empty columns are dropped first, then long
values lose their middle, and finally each row becomes a block of lines.
Pure: the caller passes in the width.
"""

import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from torrentdist.model.wording import printable

GAP = "  "
ELLIPSIS = "…"
SHORTEST = 12
"""Fewest columns of a shortened value. With less room, each row becomes a block."""
NARROWEST_PROSE = 20
PROSE = frozenset({"NOTE", "REASON", "WHAT", "WHY", "WHY NOT"})
"""Columns with sentences, which continue on the next line between two words."""
_WHOLE = frozenset({"AT", "STATE", "STATUS", "EVENT"})
"""Columns that are never shortened, like columns of numbers."""

Cells = Sequence[str]


def table(headers: Cells, rows: Iterable[Cells], right: Iterable[str], width: int | None) -> str:
    """Returns the table. Columns in `right` hold numbers, which are aligned to the right and never
    shortened.
    """
    numbers = frozenset(right)
    whole = numbers | _WHOLE
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(columns(text) for text in column) for column in zip(headers, *cells, strict=True)]
    if width is not None and _total(widths) > width:
        kept = [n for n, column in enumerate(zip(*cells, strict=True)) if any(column)]
        headers, widths = [headers[n] for n in kept], [widths[n] for n in kept]
        cells = [[row[n] for n in kept] for row in cells]
    if width is not None and _total(widths) > width:
        fitting = _fit(headers, widths, whole, width)
        shortened = None if fitting is None else _shorten_columns(headers, cells, fitting)
        if fitting is None or shortened is None:
            return _blocks(headers, cells, width)
        widths, cells = fitting, shortened
    lines = [list(headers), *cells]
    return "\n".join(line for row in lines for line in _lines(headers, row, widths, numbers))


def pairs(rows: Iterable[tuple[str, str]], width: int | None) -> str:
    """Returns one line for each pair of name and value."""
    found = [(name, printable(value)) for name, value in rows]
    widest = max((columns(name) for name, _ in found), default=0)
    room = None if width is None else max(width - widest - len(GAP), SHORTEST)
    lines = []
    for name, value in found:
        first, *more = [value] if room is None else _wrap(value, room)
        lines.append(f"{_padded(name, widest)}{GAP}{first}".rstrip())
        lines += [f"{' ' * widest}{GAP}{line}" for line in more]
    return "\n".join(lines)


def _blocks(headers: Cells, cells: list[list[str]], width: int) -> str:
    """Returns each row as a block of names and values, without the empty ones."""
    room = width - max(map(columns, headers)) - len(GAP)
    shown = [
        column if header in PROSE else shorten_apart(column, room) or column
        for header, column in zip(headers, zip(*cells, strict=True), strict=True)
    ]
    blocks = [[pair for pair in zip(headers, row, strict=True) if pair[1]] for row in zip(*shown, strict=True)]
    return "\n\n".join(pairs(block, width) for block in blocks) or "none"


def columns(text: str) -> int:
    """Returns the number of terminal columns that the text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_char_columns, text))


def shorten(text: str, room: int) -> str:
    """Returns the text, without its middle if it has more than `room` columns."""
    if columns(text) <= room:
        return text
    tail = (room - 1) // 2
    return _start(text, room - 1 - tail) + ELLIPSIS + _end(text, tail)


def shorten_apart(values: Sequence[str], room: int) -> list[str] | None:
    """Shortens each value so that different values stay different. Returns None if `room` is too
    small for that."""
    short = {value: shorten(value, room) for value in values}
    alike = _alike(short)
    for _ in range(len(short)):
        for group in alike:
            at = _first_difference(group)
            short.update({value: _shorten_around(value, at, room) for value in group})
        before, alike = alike, _alike(short)
        if not alike or alike == before:
            break
    return None if alike else [short[value] for value in values]


def _alike(short: Mapping[str, str]) -> list[list[str]]:
    """Returns the groups of values that look the same when shortened."""
    groups: dict[str, list[str]] = {}
    for value, shown in short.items():
        groups.setdefault(shown, []).append(value)
    return [group for group in groups.values() if len(group) > 1]


def _first_difference(texts: Sequence[str]) -> int:
    return next((n for n, chars in enumerate(zip(*texts, strict=False)) if len(set(chars)) > 1), min(map(len, texts)))


def _shorten_around(text: str, at: int, room: int) -> str:
    """Keeps the part from `at` on, where the text differs from another, and a little of both
    ends."""
    edge = max(1, (room - 2) // 4)
    middle = text[min(at, max(0, len(text) - edge)) :]
    core = _start(middle, room - 2 - 2 * edge)
    return _start(text, edge) + ELLIPSIS + core + ELLIPSIS + _end(text, edge)


def _fit(headers: Cells, widths: list[int], whole: frozenset[str], width: int) -> list[int] | None:
    """Returns widths that fit, or None if nothing helps. Sentences shrink first, then the longest
    values."""
    least = [
        min(wide, max(columns(header), NARROWEST_PROSE if header in PROSE else SHORTEST))
        if header not in whole
        else wide
        for header, wide in zip(headers, widths, strict=True)
    ]
    fitting = list(widths)
    for wanted in (PROSE & set(headers), set(headers) - PROSE):
        chosen = [i for i, header in enumerate(headers) if header in wanted]
        while _total(fitting) > width:
            open_ = [i for i in chosen if fitting[i] > least[i]]
            if not open_:
                break
            longest, *others = sorted(open_, key=lambda i: -fitting[i])
            low = max(least[longest], fitting[others[0]] - 1 if others else 0)
            fitting[longest] = max(low, fitting[longest] - (_total(fitting) - width))
    return fitting if _total(fitting) <= width else None


def _shorten_columns(headers: Cells, cells: list[list[str]], widths: list[int]) -> list[list[str]] | None:
    done: list[Sequence[str]] = []
    for header, column, room in zip(headers, zip(*cells, strict=True), widths, strict=True):
        shown = column if header in PROSE else shorten_apart(column, room)
        if shown is None:
            return None
        done.append(shown)
    return [list(row) for row in zip(*done, strict=True)]


def _lines(headers: Cells, row: list[str], widths: list[int], numbers: frozenset[str]) -> Iterable[str]:
    """Returns a row's line, and the continuation lines of its sentences."""
    wrapped = [
        _wrap(cell, room) if header in PROSE else [cell]
        for header, cell, room in zip(headers, row, widths, strict=True)
    ]
    for n in range(max(map(len, wrapped), default=0)):
        parts = []
        for header, texts, room in zip(headers, wrapped, widths, strict=True):
            text = texts[n] if n < len(texts) else ""
            parts.append(" " * (room - columns(text)) + text if header in numbers else _padded(text, room))
        yield GAP.join(parts).rstrip()


def _wrap(text: str, room: int) -> list[str]:
    """Breaks text between words into lines of at most `room` columns. A word that is too long is
    shortened.
    """
    if columns(text) <= room:
        return [text]
    short = " ".join(shorten(word, room) for word in text.split(" "))
    if columns(short) != len(short):
        room = max(1, room // 2)  # Some characters take two columns. Rather too narrow than too wide.
        short = " ".join(shorten(word, room) for word in text.split(" "))
    return textwrap.wrap(short, room, break_long_words=False, break_on_hyphens=False) or [""]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _padded(text: str, room: int) -> str:
    return text + " " * (room - columns(text))


def _char_columns(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def _start(text: str, room: int) -> str:
    taken = 0
    for at, char in enumerate(text):
        taken += _char_columns(char)
        if taken > room:
            return text[:at]
    return text


def _end(text: str, room: int) -> str:
    return _start(text[::-1], room)[::-1]
