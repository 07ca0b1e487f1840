"""The parts that every chart is made of: text, lines, a legend, and the figure around them.

Charts for a page take their colours from the page's style sheet, so that they follow light and
dark. `style` returns the part of that sheet that belongs to charts.

Always: text from outside is escaped. Never: load anything from elsewhere, or run a script.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

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
