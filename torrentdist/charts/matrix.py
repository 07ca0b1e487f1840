"""A matrix of amounts between senders (rows) and receivers (columns).

Always: a larger amount fills its cell more, and every cell shows its amount as a tooltip. Cells
without an amount stay empty.
"""

from collections.abc import Callable, Mapping
from html import escape

from torrentdist.charts.svg import CHARACTER_WIDTH, FIGURE_WIDTH, figure, text_at, width_of

_TOP = 50
_MOST_LABEL = 24
_ROOM_FOR_VALUE = 60
"""Cells of at least this many pixels show their amount."""


def matrix_plot(values: Mapping[tuple[str, str], float], *, form: Callable[[float], str], title: str) -> str:
    """Returns the matrix. `values` are amounts by (from, to); `form` formats an amount."""
    rows = sorted({sender for sender, _ in values})
    columns = sorted({receiver for _, receiver in values})
    left = width_of(rows, _MOST_LABEL) + 40.0
    width = min(110.0, max(30.0, (FIGURE_WIDTH - left - 10) / max(1, len(columns))))
    height = min(44.0, width)
    most = max(values.values(), default=0) or 1.0
    body = [
        text_at(left + width * len(columns) / 2, 14, "to", "middle", "axis"),
        text_at(left - 10, _TOP - 8, "from", "end", "axis"),
    ]
    for column, receiver in enumerate(columns):
        x = left + width * (column + 0.5)
        body.append(text_at(x, _TOP - 10, receiver, "middle", most=int(width / CHARACTER_WIDTH)))
    for row, sender in enumerate(rows):
        y = _TOP + height * row
        body.append(text_at(left - 10, _TOP + height * (row + 0.5) + 4, sender, "end", "label", _MOST_LABEL))
        for column, receiver in enumerate(columns):
            value = values.get((sender, receiver), 0.0)
            x = left + width * column
            body.append(_cell(x, y, (width, height), f"{sender} to {receiver}: {form(value)}", value / most))
            if value and width >= _ROOM_FOR_VALUE:
                body.append(text_at(x + width / 2, y + height / 2 + 4, form(value), "middle", "value"))
    return figure(_TOP + height * len(rows) + 8, body, title)


def _cell(x: float, y: float, extent: tuple[float, float], tooltip: str, fullness: float) -> str:
    """Returns one cell. `fullness` is its share of the largest amount, 0 to 1."""
    width, height = extent
    place = f'x="{x + 1:.1f}" y="{y + 1:.1f}" width="{width - 2:.1f}" height="{height - 2:.1f}" rx="3"'
    cell = f'<rect class="cell" {place}><title>{escape(tooltip)}</title></rect>'
    if not fullness:
        return cell
    opacity = f"{0.12 + 0.6 * fullness:.2f}"
    return f'{cell}<rect {place} fill="var(--s0)" opacity="{opacity}" pointer-events="none"/>'
