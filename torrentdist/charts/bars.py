"""Bars with stacked parts: horizontal ones, one per row, and a strip, which is a small bar for a
cell of a table.

Always: the axis starts at zero, and every part shows its value as a tooltip. A whole strip stands
for the whole amount, and the missing share stays empty.
"""

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from torrentdist.charts.svg import FIGURE_WIDTH, SERIES, axis, figure, legend, rule, text_at, width_of

_ROW_HEIGHT, _TOP = 26, 6
_MOST_LABEL, _MOST_NOTE = 34, 30
"""Labels and notes are shortened to this many characters."""


class Bar(NamedTuple):
    label: str
    parts: Sequence[float]
    """Values, stacked in this order."""
    note: str = ""
    """A remark to the right of the bar."""


def bar_plot(
    bars: Sequence[Bar],
    parts: Sequence[str],
    *,
    form: Callable[[float], str],
    x_label: str,
    title: str,
    most: float | None = None,
    colours: Sequence[int] = range(SERIES),
) -> str:
    """Returns a chart of bars. `parts` names the parts of every bar, `colours` are their series,
    and `form` formats a value. The axis ends exactly at `most`, or at a round number above the
    longest bar if it is None."""
    left = width_of([bar.label for bar in bars], _MOST_LABEL) + 20
    width = FIGURE_WIDTH - left - width_of([bar.note for bar in bars], _MOST_NOTE) - 36
    longest = most or max((sum(bar.parts) for bar in bars), default=1.0)
    x_ticks = axis(longest, form, max(2, int(width / 90)))
    scale = width / (most or x_ticks[-1][0])
    bottom = _TOP + _ROW_HEIGHT * len(bars) + 4
    body = []
    for x, label in ((x, label) for x, label in x_ticks if x <= (most or x) * 1.0001):
        body.append(rule(left + x * scale, _TOP, left + x * scale, bottom))
        body.append(text_at(left + x * scale, bottom + 18, label, "middle"))
    body.append(text_at(left + width / 2, bottom + 40, x_label, "middle", "axis"))
    for row, bar in enumerate(bars):
        y, x = _TOP + _ROW_HEIGHT * row, left
        body.append(text_at(left - 10, y + 17, bar.label, "end", "label", _MOST_LABEL))
        for name, colour, value in zip(parts, colours, bar.parts, strict=False):
            length = value * scale
            if length > 0:
                body.append(_part(x, y, length, f"{bar.label}, {name}: {form(value)}", colour))
            x += length
        body.append(text_at(x + 8, y + 17, bar.note, "start", most=_MOST_NOTE))
    return (legend(parts, colours) if len(parts) > 1 else "") + figure(bottom + 50, body, title)


def _part(x: float, y: float, length: float, tooltip: str, colour: int) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y + 4}" width="{max(length - 1, 0.6):.1f}" height="{_ROW_HEIGHT - 8}" rx="2" '
        f'fill="var(--s{colour})"><title>{escape(tooltip)}</title></rect>'
    )


_WIDTH, _HEIGHT = 160, 10


def strip(parts: Sequence[float], whole: float, title: str, colours: Sequence[int]) -> str:
    """Returns the strip. `parts` are amounts in the order in which they are drawn, `colours` their
    series. `title` is shown as a tooltip, and read aloud by screen readers."""
    scale = _WIDTH / whole if whole > 0 else 0.0
    body, x = [f'<rect class="cell" width="{_WIDTH}" height="{_HEIGHT}" rx="2"/>'], 0.0
    for value, colour in zip(parts, colours, strict=True):
        width = min(value * scale, _WIDTH - x)
        if width > 0:
            body.append(f'<rect x="{x:.1f}" width="{width:.1f}" height="{_HEIGHT}" fill="var(--s{colour})"/>')
            x += width
    return (
        f'<svg class="strip" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}"><title>{escape(title)}</title>{"".join(body)}</svg>'
    )
