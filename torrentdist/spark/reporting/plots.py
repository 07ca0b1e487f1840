"""Plots as inline SVG: values in, markup out. Colours are the page's CSS variables, so light and dark both work.

Always holds: axes start at zero and are labelled with their unit, text from outside is escaped, and every mark says its
value when it is pointed at. Must not do: load anything, or run a script.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH = 860
SERIES = 8
"""So many colours can be told apart; the page's CSS has --s0 to --s7."""
_ROW = 26
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_CHARACTER = 7.0
"""Width of one in the page's font, on the safe side."""
_MOST_LABEL, _MOST_NOTE = 34, 30


class Curve(NamedTuple):
    name: str
    points: Sequence[tuple[float, float]]


class Bar(NamedTuple):
    label: str
    parts: Sequence[float]
    """Stacked in this order."""
    note: str = ""


def seconds(value: float) -> str:
    if value >= 7200:
        return f"{value / 3600:.1f} h"
    if value >= 120:
        return f"{value / 60:.1f} min"
    return f"{value:.0f} s" if value >= 10 or value == int(value) else f"{value:.2g} s"


def size(value: float) -> str:
    for unit in _UNITS[:-1]:
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} PiB"


def count(value: float) -> str:
    return f"{value:,.0f}"


def percent(value: float) -> str:
    return f"{value:.0%}" if value in (0, 1) or 0.01 <= value <= 0.995 else f"{value:.1%}"


def ticks(most: float, wanted: int = 5, *, whole: bool = False) -> list[float]:
    """Round numbers from 0 to just above `most`; `whole`: no fractions."""
    if most <= 0:
        return [0.0, 1.0]
    rough = max(1.0, most / wanted) if whole else most / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    factors = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = next(factor * power for factor in factors if factor * power >= rough * 0.999)
    return [step * n for n in range(math.ceil(most / step - 1e-9) + 1)]


def axis(most: float, form: Callable[[float], str], wanted: int = 5) -> list[tuple[float, str]]:
    """Where the ticks are and what they say: all in one unit, that of the largest."""
    unit, name = 1.0, ""
    if form is seconds:
        unit, name = (3600.0, " h") if most >= 7200 else (60.0, " min") if most >= 120 else (1.0, " s")
    elif form is size:
        power = min(5, max(0, math.floor(math.log(most, 1024)))) if most >= 1 else 0
        unit, name = 1024.0**power, " " + _UNITS[power]
    elif form is percent:
        unit, name = 0.01, "%"
    return [(unit * value, f"{value:,.6g}{name}") for value in ticks(most / unit, wanted, whole=form is count)]


def line_plot(curves: Sequence[Curve], *, x_label: str, y_label: str, title: str) -> str:
    """Shares over seconds, in steps: a host has a bundle or it has not."""
    left, right, top, height = 64, 36, 14, 300
    x_ticks = axis(max((x for curve in curves for x, _ in curve.points), default=1.0), seconds, 8)
    bottom, width = top + height, WIDTH - left - right

    def x_of(value: float) -> float:
        return left + width * value / x_ticks[-1][0]

    def y_of(value: float) -> float:
        return bottom - height * value

    body = [
        _rule(left, y_of(y), left + width, y_of(y)) + _text(left - 8, y_of(y) + 4, percent(y), "end")
        for y in (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
    ]
    body += [_text(x_of(x), bottom + 20, said, "middle") for x, said in x_ticks]
    body += [_text(left + width / 2, bottom + 42, x_label, "middle", "axis")]
    body += [
        f'<text class="axis" transform="translate(14 {top + height / 2:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>"
    ]
    for number, curve in enumerate(curves):
        path = f"M{x_of(0):.1f} {y_of(0):.1f}" + "".join(f"H{x_of(x):.1f}V{y_of(y):.1f}" for x, y in curve.points)
        told = (
            f"{curve.name}: {percent(curve.points[-1][1])} after {seconds(curve.points[-1][0])}" if curve.points else ""
        )
        body.append(
            f'<path class="line" d="{path}" stroke="var(--s{number % SERIES})"><title>{escape(told)}</title></path>'
        )
        if curve.points:
            x, y = curve.points[-1]
            body.append(f'<circle cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3.5" fill="var(--s{number % SERIES})"/>')
    return legend([curve.name for curve in curves], range(SERIES)) + _svg(bottom + 52, body, title)


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
    """A stack a row; the note stands at its right."""
    widest = most or max((sum(bar.parts) for bar in bars), default=1.0)
    left = _CHARACTER * min(_MOST_LABEL, max((len(bar.label) for bar in bars), default=0)) + 20
    noted = _CHARACTER * min(_MOST_NOTE, max((len(bar.note) for bar in bars), default=0)) + 36
    top, width = 6, WIDTH - left - noted
    x_ticks = axis(widest, form, max(2, int(width / 90)))
    bottom = top + _ROW * len(bars) + 4
    scale = width / (most or x_ticks[-1][0])
    body = []
    for x, said in ((x, said) for x, said in x_ticks if x <= (most or x) * 1.0001):
        body.append(_rule(left + x * scale, top, left + x * scale, bottom))
        body.append(_text(left + x * scale, bottom + 18, said, "middle"))
    body.append(_text(left + width / 2, bottom + 40, x_label, "middle", "axis"))
    for row, bar in enumerate(bars):
        y, x = top + _ROW * row, left
        body.append(_text(left - 10, y + 17, bar.label, "end", "label", _MOST_LABEL))
        for number, value in enumerate(bar.parts):
            told = f"{bar.label}, {parts[number]}: {form(value)}"
            length = value * scale
            if length > 0:
                body.append(
                    f'<rect x="{x:.1f}" y="{y + 4}" width="{max(length - 1, 0.6):.1f}" height="{_ROW - 8}" rx="2" '
                    f'fill="var(--s{colours[number]})"><title>{escape(told)}</title></rect>'
                )
            x += length
        body.append(_text(x + 8, y + 17, bar.note, "start", most=_MOST_NOTE))
    return (legend(parts, colours) if len(parts) > 1 else "") + _svg(bottom + 50, body, title)


def matrix_plot(values: Mapping[tuple[str, str], float], *, form: Callable[[float], str], title: str) -> str:
    """From (row) to (column): the fuller a cell, the more; empty ones stay empty."""
    rows = sorted({a for a, _ in values})
    columns = sorted({b for _, b in values})
    left, top = _CHARACTER * min(24, max((len(name) for name in rows), default=0)) + 40.0, 50
    cell = min(110.0, max(30.0, (WIDTH - left - 10) / max(1, len(columns))))
    high = min(44.0, cell)
    most = max(values.values(), default=0) or 1.0
    body = [
        _text(left + cell * len(columns) / 2, 14, "to", "middle", "axis"),
        _text(left - 10, top - 8, "from", "end", "axis"),
    ]
    body += [
        _text(left + cell * (n + 0.5), top - 10, name, "middle", most=int(cell / _CHARACTER))
        for n, name in enumerate(columns)
    ]
    for row, from_ in enumerate(rows):
        body.append(_text(left - 10, top + high * (row + 0.5) + 4, from_, "end", "label", 24))
        for column, to in enumerate(columns):
            value = values.get((from_, to), 0.0)
            x, y, told = left + cell * column, top + high * row, f"{from_} to {to}: {form(value)}"
            body.append(
                f'<rect class="cell" x="{x + 1:.1f}" y="{y + 1:.1f}" width="{cell - 2:.1f}" height="{high - 2:.1f}" '
                f'rx="3"><title>{escape(told)}</title></rect>'
            )
            if value:
                body.append(
                    f'<rect x="{x + 1:.1f}" y="{y + 1:.1f}" width="{cell - 2:.1f}" height="{high - 2:.1f}" rx="3" '
                    f'fill="var(--s0)" opacity="{0.12 + 0.6 * value / most:.2f}" pointer-events="none"/>'
                )
            if value and cell >= 60:
                body.append(_text(x + cell / 2, y + high / 2 + 4, form(value), "middle", "value"))
    return _svg(top + high * len(rows) + 8, body, title)


def legend(names: Sequence[str], colours: Sequence[int]) -> str:
    keys = (
        f'<span><i style="background:var(--s{colour})"></i>{escape(name)}</span>'
        for name, colour in zip(names, colours, strict=False)
    )
    return f'<div class="legend">{"".join(keys)}</div>'


def _svg(height: float, body: Sequence[str], title: str) -> str:
    # Narrow screens scroll: text that shrinks with the picture can't be read.
    return (
        f'<div class="plot"><svg viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" role="img" '
        f'aria-label="{escape(title)}">{"".join(body)}</svg></div>'
    )


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="rule" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, text: str, anchor: str, kind: str = "tick", most: int = 200) -> str:
    """Of more than `most` characters the whole is said when it is pointed at."""
    said = short(text, most)
    whole = f"<title>{escape(text)}</title>" if said != text else ""
    at = f'class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {at}>{whole}{escape(said)}</text>" if text else ""


def short(text: str, most: int) -> str:
    """The middle goes: beginnings and ends tell names apart."""
    if len(text) <= most:
        return text
    head = max(1, (most - 1) * 2 // 3)
    return f"{text[:head]}…{text[len(text) - max(1, most - 1 - head) :]}"
