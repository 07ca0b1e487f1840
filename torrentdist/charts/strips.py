"""A strip: a small bar for a cell of a table. It shows how full one thing is, and by which parts.

Always: the whole strip stands for the whole amount. The missing share stays empty.
"""

from collections.abc import Sequence
from html import escape

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
