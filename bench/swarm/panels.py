"""Panels side by side: many lines of shares over time, one panel for each thing to compare.

The picture is a file of its own, with fixed colours on white.

Always: all panels have the same axes, and every line is drawn. Never: smooth a line.
"""

from collections.abc import Sequence
from enum import Enum
from html import escape
from typing import NamedTuple

_WIDTH, _HEIGHT, _GAP, _LEFT, _TOP, _HEAD, _FOOT = 290, 190, 30, 48, 40, 26, 26
_LEAST_WIDTH = 480
"""Width of the heading's text, in pixels."""
_IN_A_ROW = 3
_STYLE = "font: 12px sans-serif; fill: #333"


class EndMark(Enum):
    """The mark at the last point of a line."""

    NONE = ""
    DOT = "dot"
    CROSS = "cross"


class Line(NamedTuple):
    points: Sequence[tuple[float, float]]
    """Times in the picture's unit, and shares from 0 to 1."""
    colour: str
    end: EndMark = EndMark.NONE


class Moment(NamedTuple):
    """Something that happened at one time: a dashed line across the panel."""

    at: float
    name: str
    colour: str


class Panel(NamedTuple):
    title: str
    lines: Sequence[Line]
    moments: Sequence[Moment] = ()


def panel_picture(panels: Sequence[Panel], *, title: str, note: str, unit: str, most: float) -> str:
    """Returns the SVG file. `most`: the end of the time axis, in units; the line at 1 is darker."""
    across, down = min(_IN_A_ROW, len(panels)), -(-len(panels) // _IN_A_ROW)
    width, height = max(_LEAST_WIDTH, _LEFT + across * (_WIDTH + _GAP)), _TOP + down * (_HEAD + _HEIGHT + _FOOT)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{_LEFT}" y="18" style="{_STYLE}; font-weight: bold">{_escaped(title)}</text>',
            f'<text x="{_LEFT}" y="34" style="{_STYLE}; fill: #777">{_escaped(note)}</text>',
            *(_panel(number, panel, unit, most) for number, panel in enumerate(panels)),
            "</svg>\n",
        ]
    )


def _panel(number: int, panel: Panel, unit: str, most: float) -> str:
    row, column = divmod(number, _IN_A_ROW)
    left, top = _LEFT + column * (_WIDTH + _GAP), _TOP + _HEAD + row * (_HEAD + _HEIGHT + _FOOT)

    def at(time: float, share: float) -> tuple[str, str]:
        return f"{left + _WIDTH * time / most:.1f}", f"{top + _HEIGHT * (1 - share):.1f}"

    parts = [
        f'<text x="{left}" y="{top - 7}" style="{_STYLE}">{_escaped(panel.title)}</text>',
        f'<rect x="{left}" y="{top}" width="{_WIDTH}" height="{_HEIGHT}" fill="none" stroke="#ccc"/>',
        *_times(left, top, unit, most),
    ]
    for share in (0.0, 0.5, 1.0) if not column else ():
        y = top + _HEIGHT * (1 - share)
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" style="{_STYLE}">{share:.0%}</text>')
    for line in panel.lines:
        points = [at(*point) for point in line.points]
        path = " ".join(",".join(point) for point in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{line.colour}" stroke-opacity="0.55"/>')
        if points and line.end is not EndMark.NONE:
            parts.append(_end_mark(points[-1], line))
    parts += [_moment(at(what.at, 0.0), at(what.at, 1.0), what) for what in panel.moments]
    return "\n".join(parts)


def _times(left: float, top: float, unit: str, most: float) -> list[str]:
    parts = []
    step = next(step for step in (0.5, 1.0, 2.0, 4.0, 8.0, 1e9) if most / step <= 6)
    for number in range(int(most / step) + 1):
        x = left + _WIDTH * number * step / most
        colour = "#999" if number * step == 1.0 else "#e6e6e6"
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + _HEIGHT}" stroke="{colour}"/>')
        place = f'x="{x:.1f}" y="{top + _HEIGHT + 15}" text-anchor="middle"'
        parts.append(f'<text {place} style="{_STYLE}">{number * step:g} {_escaped(unit)}</text>')
    return parts


def _end_mark(place: tuple[str, str], line: Line) -> str:
    x, y = place
    if line.end is EndMark.DOT:
        return f'<circle cx="{x}" cy="{y}" r="2.2" fill="{line.colour}"/>'
    return f'<text x="{x}" y="{y}" dy="4" text-anchor="middle" style="{_STYLE}; fill: {line.colour}">×</text>'


def _moment(bottom: tuple[str, str], top: tuple[str, str], what: Moment) -> str:
    x, low = bottom
    return (
        f'<line x1="{x}" x2="{x}" y1="{low}" y2="{top[1]}" stroke="{what.colour}" stroke-dasharray="4 3"/>'
        f'<text x="{x}" y="{low}" dx="4" dy="-6" style="{_STYLE}; fill: {what.colour}">{_escaped(what.name)}</text>'
    )


def _escaped(text: str) -> str:
    return escape(text, quote=False)
