"""Charts of cells: a matrix of amounts between senders (rows) and receivers (columns), and a
mosaic with a small cell for each of many things, coloured by its state.

Always: a larger amount fills its cell of a matrix more, and every cell shows its amount as a
tooltip. Cells without an amount stay empty. A mosaic takes some 15 bytes for each thing.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

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


LEAST_COLUMNS = 50


class Tile(NamedTuple):
    """A state, and how its cells look."""

    name: str
    colour: int
    address: str = ""
    """The page with the things in this state; empty: none."""
    strength: int = 100
    """Opacity in percent."""


def mosaic(states: Sequence[str], tiles: Mapping[str, Tile], title: str) -> str:
    """Returns the cells in the order of `states`, and a key with the number of each state."""
    columns = max(LEAST_COLUMNS, math.ceil(math.sqrt(len(states) * 4)))
    places: dict[str, list[int]] = {state: [] for state in tiles}
    for place, state in enumerate(states):
        places[state].append(place)
    height = -(-len(states) // columns)
    paths = "".join(_path(tiles[state], found, columns) for state, found in places.items() if found)
    said = ", ".join(f"{len(found):,} {tiles[state].name}" for state, found in places.items() if found)
    return (
        f'<div class="legend">{_key(tiles, places)}</div><svg class="mosaic" viewBox="0 0 {columns} {height}" '
        f'role="img" aria-label="{escape(f"{title}: {said}")}">{paths}</svg>'
    )


def _path(tile: Tile, places: Iterable[int], columns: int) -> str:
    cells = "".join(f"M{place % columns} {place // columns}h.8v.8h-.8z" for place in places)
    opacity = f' opacity=".{tile.strength}"' if tile.strength < 100 else ""
    return f'<path fill="var(--s{tile.colour})"{opacity} d="{cells}"/>'


def _key(tiles: Mapping[str, Tile], places: Mapping[str, Sequence[int]]) -> str:
    keys = []
    for state, found in places.items():
        tile, text = tiles[state], f"{len(found):,} {tiles[state].name}"
        shown = f'<a href="{escape(tile.address)}">{escape(text)}</a>' if tile.address else escape(text)
        keys.append(f'<span><i class="s{tile.colour}"></i>{shown}</span>' if found else "")
    return "".join(keys)
