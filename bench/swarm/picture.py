"""A scenario as a picture: how far every host is at every moment, ours and the others side by side.

Always holds: all panels have the same axes, and one line is one host; a dot is its end, a cross its loss of power. Must
not do: smooth, or leave a host out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.swarm.scenario import Outcome

WIDTH, HEIGHT, GAP, LEFT, TOP, HEAD, FOOT = 290, 190, 30, 48, 40, 26, 26
LEAST = 480
"""As wide as the words above."""
IN_A_ROW = 3
COLOURS = ("#1f6f8b", "#b5532a", "#6b6b6b", "#7a5195", "#4f7d3a", "#a8893a")
ASIDE, CUT = "#d08a00", "#c0392b"
LONGEST = 3.0
"""Link times: what takes longer runs out of its panel, and its end stands above it."""
STYLE = "font: 12px sans-serif; fill: #333"


def picture(title: str, outcomes: Mapping[str, Outcome], link_time: float) -> str:
    """As SVG. Time is in link times."""
    latest = max((o.last_done / link_time for o in outcomes.values() if o.ends), default=1.0)
    most = min(LONGEST, max(1.5, 0.5 * -(-latest // 0.5)))
    across, down = min(IN_A_ROW, len(outcomes)), -(-len(outcomes) // IN_A_ROW)
    panels = [_panel(number, name, outcome, link_time, most) for number, (name, outcome) in enumerate(outcomes.items())]
    width, height = max(LEAST, LEFT + across * (WIDTH + GAP)), TOP + down * (HEAD + HEIGHT + FOOT)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{LEFT}" y="18" style="{STYLE}; font-weight: bold">{_escaped(title)}</text>',
            f'<text x="{LEFT}" y="34" style="{STYLE}; fill: #777">what has come down each host\'s link, of one bundle, '
            "by time in T</text>",
            *panels,
            "</svg>\n",
        ]
    )


def _panel(number: int, name: str, outcome: Outcome, link_time: float, most: float) -> str:
    row, column = divmod(number, IN_A_ROW)
    left, top = LEFT + column * (WIDTH + GAP), TOP + HEAD + row * (HEAD + HEIGHT + FOOT)

    def at(moment: float, share: float) -> str:
        return f"{left + WIDTH * moment / link_time / most:.1f},{top + HEIGHT * (1 - share):.1f}"

    parts = [_frame(left, top, most, f"{name}: {_end(outcome, link_time)}", labelled=not column)]
    colour = COLOURS[number % len(COLOURS)]
    for host, samples in sorted(outcome.progress.items()):
        end, cut = outcome.ends.get(host), outcome.cuts.get(host)
        until = min([*(moment for moment in (end, cut) if moment is not None), most * link_time])
        seen = [(moment, min(1.0, share)) for moment, share in samples if moment < until]
        line = " ".join(at(*point) for point in [*seen, *([(end, 1.0)] if end is not None and end <= until else [])])
        own = ASIDE if host in outcome.aside else CUT if cut is not None else colour
        parts.append(f'<polyline points="{line}" fill="none" stroke="{own}" stroke-opacity="0.55"/>')
        if end is not None and end <= until:
            x, y = at(end, 1.0).split(",")
            parts.append(f'<circle cx="{x}" cy="{y}" r="2.2" fill="{own}"/>')
        elif cut is not None and seen:
            x, y = at(*seen[-1]).split(",")
            parts.append(f'<text x="{x}" y="{y}" dy="4" text-anchor="middle" style="{STYLE}; fill: {CUT}">×</text>')
    parts += [_gone(at, host, moment) for host, moment in outcome.cuts.items() if host not in outcome.progress]
    return "\n".join(parts)


def _end(outcome: Outcome, link_time: float) -> str:
    last = f"last at {outcome.last_done / link_time:.2f} T" if outcome.ends else "nobody is done"
    return f"{last}, {len(outcome.failed)} not done" if outcome.failed else last


def _gone(at: Callable[[float, float], str], host: str, moment: float) -> str:
    """A holder that left."""
    (x, bottom), (_, top) = at(moment, 0.0).split(","), at(moment, 1.0).split(",")
    return (
        f'<line x1="{x}" x2="{x}" y1="{bottom}" y2="{top}" stroke="{CUT}" stroke-dasharray="4 3"/>'
        f'<text x="{x}" y="{bottom}" dx="4" dy="-6" style="{STYLE}; fill: {CUT}">{_escaped(host)} leaves</text>'
    )


def _frame(left: float, top: float, most: float, title: str, *, labelled: bool) -> str:
    parts = [
        f'<text x="{left}" y="{top - 7}" style="{STYLE}">{_escaped(title)}</text>',
        f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#ccc"/>',
    ]
    step = next(step for step in (0.5, 1.0, 2.0, 4.0, 8.0, 1e9) if most / step <= 6)
    for number in range(int(most / step) + 1):
        x = left + WIDTH * number * step / most
        colour = "#999" if number * step == 1.0 else "#e6e6e6"
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + HEIGHT}" stroke="{colour}"/>')
        place = f'x="{x:.1f}" y="{top + HEIGHT + 15}" text-anchor="middle"'
        parts.append(f'<text {place} style="{STYLE}">{number * step:g} T</text>')
    for share in (0.0, 0.5, 1.0) if labelled else ():
        y = top + HEIGHT * (1 - share)
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" style="{STYLE}">{share:.0%}</text>')
    return "\n".join(parts)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
