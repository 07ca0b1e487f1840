"""The parts that every chart is made of: text, lines, axes, a legend, and the figure around
them.

Charts for a page take their colours from the page's style sheet, so that they follow light and
dark. `style` returns the part of that sheet that belongs to charts.

Always: text from outside is escaped. An axis starts at zero, ends at or above the largest value,
and has a single unit.
Never: load anything from elsewhere, or run a script.
"""

import math
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from torrentdist.charts.quantities import BINARY_UNITS, HOURS_FROM, MINUTES_FROM, count, percent, seconds, size

FIGURE_WIDTH = 860
"""Width of a chart on a page, in pixels."""
SERIES = 8
"""Number of colours that readers can tell apart: --s0 to --s7 in the style sheet."""
CHARACTER_WIDTH = 7.0
"""Upper estimate of one character's width in the chart font, in pixels."""


def style() -> str:
    """Returns the CSS that a page with charts needs."""
    return Path(__file__).with_name("charts.css").read_text(encoding="utf-8")


def figure(height: float, body: Sequence[str], title: str) -> str:
    """Returns the chart as an element of a page. `title` is read aloud by screen readers."""
    # Narrow screens scroll: text that shrinks with the picture cannot be read.
    said = f'role="img" aria-label="{escape(title)}"'
    picture = f'<svg viewBox="0 0 {FIGURE_WIDTH} {height:.0f}" width="{FIGURE_WIDTH}" height="{height:.0f}" {said}>'
    scrolls = f'<div class="plot" tabindex="0" role="region" aria-label="{escape(title)}">'
    return f"{scrolls}{picture}{''.join(body)}</svg></div>"


def legend(names: Sequence[str], colours: Sequence[int]) -> str:
    """Returns a line of keys, each with its colour. `colours` are numbers of series."""
    keys = (
        f'<span><i class="s{colour}"></i>{escape(name)}</span>' for name, colour in zip(names, colours, strict=False)
    )
    return f'<div class="legend">{"".join(keys)}</div>'


def rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="rule" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def text_at(x: float, y: float, text: str, anchor: str, kind: str = "tick", most: int = 200) -> str:
    """Returns `text`, shortened to `most` characters. The whole text appears as a tooltip."""
    shown = shorten(text, most)
    whole = f"<title>{escape(text)}</title>" if shown != text else ""
    at = f'class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text {at}>{whole}{escape(shown)}</text>" if text else ""


def shorten(text: str, most: int) -> str:
    """Cuts the middle out of a long text: beginnings and ends tell names apart."""
    if len(text) <= most:
        return text
    head = max(1, (most - 1) * 2 // 3)
    return f"{text[:head]}…{text[len(text) - max(1, most - 1 - head) :]}"


def width_of(texts: Sequence[str], most: int) -> float:
    """Returns the width of the longest text, shortened to `most` characters, in pixels."""
    return CHARACTER_WIDTH * min(most, max(map(len, texts), default=0))


def ticks(most: float, wanted: int = 5, *, whole: bool = False) -> list[float]:
    """Returns about `wanted` round numbers from 0 to just above `most`. `whole`: no fractions."""
    if most <= 0:
        return [0.0, 1.0]
    rough = max(1.0, most / wanted) if whole else most / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    factors = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = next(factor * power for factor in factors if factor * power >= rough * 0.999)
    return [step * n for n in range(math.ceil(most / step - 1e-9) + 1)]


def axis(most: float, form: Callable[[float], str], wanted: int = 5) -> list[tuple[float, str]]:
    """Returns each tick's value and label. All labels have the unit of the largest value."""
    unit, name = _unit(most, form)
    return [(unit * value, f"{value:,.6g}{name}") for value in ticks(most / unit, wanted, whole=form is count)]


def _unit(most: float, form: Callable[[float], str]) -> tuple[float, str]:
    """Returns the value of one unit, and its name."""
    if form is seconds:
        return (3600.0, " h") if most >= HOURS_FROM else (60.0, " min") if most >= MINUTES_FROM else (1.0, " s")
    if form is size:
        power = min(5, max(0, math.floor(math.log(most, 1024)))) if most >= 1 else 0
        return 1024.0**power, " " + BINARY_UNITS[power]
    return (0.01, "%") if form is percent else (1.0, "")
