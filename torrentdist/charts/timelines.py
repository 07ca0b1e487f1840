"""A timeline: one lane for each kind of thing that happened, cut into equal spans of time.

Always: its size depends on the number of spans, not on how much happened.
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

SPANS = 48


@dataclass(frozen=True)
class Lane:
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
