"""Curves of shares over time, drawn as steps: a host has a bundle or it does not.

Always: both axes start at zero, and every curve shows its end as a tooltip.
"""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from torrentdist.charts.axes import axis
from torrentdist.charts.quantities import percent, seconds
from torrentdist.charts.svg import FIGURE_WIDTH, SERIES, figure, legend, rule, text_at

_LEFT, _RIGHT, _TOP, _HEIGHT = 64, 36, 14, 300
_WIDTH = FIGURE_WIDTH - _LEFT - _RIGHT
_BOTTOM = _TOP + _HEIGHT
_SHARES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)


class Curve(NamedTuple):
    name: str
    points: Sequence[tuple[float, float]]
    """Seconds and the share reached by then, in order."""


def step_plot(curves: Sequence[Curve], *, x_label: str, y_label: str, title: str) -> str:
    x_ticks = axis(max((x for curve in curves for x, _ in curve.points), default=1.0), seconds, 8)
    scale = _WIDTH / x_ticks[-1][0]
    body = [
        *(rule(_LEFT, _y(share), _LEFT + _WIDTH, _y(share)) for share in _SHARES),
        *(text_at(_LEFT - 8, _y(share) + 4, percent(share), "end") for share in _SHARES),
        *(text_at(_LEFT + x * scale, _BOTTOM + 20, label, "middle") for x, label in x_ticks),
        text_at(_LEFT + _WIDTH / 2, _BOTTOM + 42, x_label, "middle", "axis"),
        f'<text class="axis" transform="translate(14 {_TOP + _HEIGHT / 2:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text>",
        *(_curve(curve, f"var(--s{number % SERIES})", scale) for number, curve in enumerate(curves)),
    ]
    return legend([curve.name for curve in curves], range(SERIES)) + figure(_BOTTOM + 52, body, title)


def _y(share: float) -> float:
    return _BOTTOM - _HEIGHT * share


def _curve(curve: Curve, colour: str, scale: float) -> str:
    """Returns the steps, and a dot at their end."""
    steps = "".join(f"H{_LEFT + x * scale:.1f}V{_y(y):.1f}" for x, y in curve.points)
    path = f'd="M{_LEFT:.1f} {_y(0):.1f}{steps}" stroke="{colour}"'
    if not curve.points:
        return f'<path class="line" {path}><title></title></path>'
    x, y = curve.points[-1]
    tooltip = escape(f"{curve.name}: {percent(y)} after {seconds(x)}")
    return (
        f'<path class="line" {path}><title>{tooltip}</title></path>'
        f'<circle cx="{_LEFT + x * scale:.1f}" cy="{_y(y):.1f}" r="3.5" fill="{colour}"/>'
    )
