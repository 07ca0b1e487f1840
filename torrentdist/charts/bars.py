"""Horizontal bars with stacked parts, one bar per row.

Always: the axis starts at zero, and every part shows its value as a tooltip.
"""

from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from torrentdist.charts.axes import axis
from torrentdist.charts.svg import FIGURE_WIDTH, SERIES, figure, legend, rule, text_at, width_of

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
