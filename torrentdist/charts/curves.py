"""Charts over time: curves of shares, drawn as steps, because a host has a bundle or does not;
and a timeline with one lane for each kind of thing that happened.

Always: both axes of curves start at zero, and every curve shows its end as a tooltip. The size of
a timeline depends on the number of its spans, not on how much happened.
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

import msgspec

from torrentdist.charts.quantities import percent, seconds
from torrentdist.charts.svg import FIGURE_WIDTH, SERIES, axis, figure, legend, rule, text_at

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


SPANS = 48


class Lane(msgspec.Struct, frozen=True):
    name: str
    address: str
    """The page with its details."""
    moments: Sequence[float]
    colour: int


def timeline(lanes: Iterable[Lane], begin: float, end: float) -> str:
    """Returns the lanes as part of a page."""
    return f'<div class="timeline">{"".join(_lane(lane, begin, end) for lane in lanes)}</div>'


def _lane(lane: Lane, begin: float, end: float) -> str:
    secs = (end - begin) / SPANS
    counts = Counter(int((at - begin) / secs) for at in lane.moments if begin <= at < end)
    marks = "".join(
        f'<rect x="{span}" width="1" height="10"><title>{escape(_span(begin + span * secs))}: {count}</title></rect>'
        for span, count in sorted(counts.items())
    )
    said = f"{lane.name}: {counts.total()} from {_span(begin)} to {_span(end)}"
    return (
        f'<a href="{escape(lane.address)}">{escape(lane.name)}</a><span>{counts.total():,}</span>'
        f'<svg viewBox="0 0 {SPANS} 10" preserveAspectRatio="none" fill="var(--s{lane.colour})" role="img" '
        f'aria-label="{escape(said)}"><rect class="cell" width="{SPANS}" height="10"/>{marks}</svg>'
    )


def _span(at: float) -> str:
    return time.strftime("%a %H:%M", time.gmtime(at))
