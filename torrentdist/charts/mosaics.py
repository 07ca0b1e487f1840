"""A mosaic: a small cell for each of many things, coloured by its state, so that thousands are seen
at a glance.

Always: its size is some 15 bytes for each thing.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

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
