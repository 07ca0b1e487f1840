"""A scenario as a picture: how far every host is at every moment, ours and the peers side by side.

Always holds: all panels have the same axes, and one line is one host. Must not do: smooth, or leave a host out.
"""

from __future__ import annotations

from collections.abc import Mapping

from bench.swarm_scenario import Outcome

WIDTH, HEIGHT, GAP, LEFT, TOP, BOTTOM = 250, 180, 36, 44, 46, 40
COLOURS = ("#1f6f8b", "#b5532a", "#6b6b6b", "#7a5195", "#4f7d3a", "#a8893a")
LONGEST = 3.0
"""Link times: what takes longer runs out of its panel, and its end stands above it."""
STYLE = "font: 12px sans-serif; fill: #333"


def picture(title: str, outcomes: Mapping[str, Outcome], link_time: float) -> str:
    """As SVG. Time is in link times."""
    latest = max((o.last_done / link_time for o in outcomes.values() if o.ends), default=1.0)
    most = min(LONGEST, max(1.5, 0.5 * -(-latest // 0.5)))
    width = LEFT + len(outcomes) * (WIDTH + GAP)
    panels = [
        _panel(LEFT + number * (WIDTH + GAP), name, outcome, link_time, most, COLOURS[number % len(COLOURS)])
        for number, (name, outcome) in enumerate(outcomes.items())
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{TOP + HEIGHT + BOTTOM}">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{LEFT}" y="18" style="{STYLE}; font-weight: bold">{_escaped(title)}</text>',
            *(_share(share) for share in (0.0, 0.5, 1.0)),
            *panels,
            "</svg>\n",
        ]
    )


def _panel(left: float, name: str, outcome: Outcome, link_time: float, most: float, colour: str) -> str:
    def x(moment: float) -> float:
        return left + WIDTH * moment / link_time / most

    last = f"last at {outcome.last_done / link_time:.2f} T" if outcome.ends else "nobody is done"
    if outcome.failed:
        last += f", {len(outcome.failed)} not done"
    parts = [
        f'<text x="{left}" y="{TOP - 8}" style="{STYLE}">{_escaped(name)}: {last}</text>',
        f'<rect x="{left}" y="{TOP}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#ccc"/>',
    ]
    step = next(step for step in (0.5, 1.0, 2.0, 4.0, 8.0, 1e9) if most / step <= 6)
    for number in range(int(most / step) + 1):
        at = x(number * step * link_time)
        parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{TOP + HEIGHT}" stroke="#eee"/>')
        place = f'x="{at:.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle"'
        parts.append(f'<text {place} style="{STYLE}">{number * step:g} T</text>')
    for host, samples in sorted(outcome.progress.items()):
        end = outcome.ends.get(host)
        seen = [(at, min(1.0, share)) for at, share in samples if end is None or at < end]
        points = [(at, share) for at, share in [*seen, *([(end, 1.0)] if end else [])] if at <= most * link_time]
        line = " ".join(f"{x(at):.1f},{TOP + HEIGHT * (1 - share):.1f}" for at, share in points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-opacity="0.5"/>')
    return "\n".join(parts)


def _share(share: float) -> str:
    y = TOP + HEIGHT * (1 - share)
    return f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end" style="{STYLE}">{share:.0%}</text>'


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
