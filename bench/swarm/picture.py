"""Draws a scenario: the progress of every host over time, ours and the other programs side by side.

One line is one host. A dot marks its end, a cross its loss of power.

Never: leave a host out.
"""

from __future__ import annotations

from collections.abc import Mapping

from bench.swarm.panels import EndMark, Line, Moment, Panel, panel_picture
from bench.swarm.scenario import Outcome

COLOURS = ("#1f6f8b", "#b5532a", "#6b6b6b", "#7a5195", "#4f7d3a", "#a8893a")
ASIDE, CUT = "#d08a00", "#c0392b"
LONGEST = 3.0
"""The longest time axis, in link times. Longer lines leave their panel; its title says when they
end."""


def picture(title: str, outcomes: Mapping[str, Outcome], link_time: float) -> str:
    """Returns SVG. The unit of time is T, the link time."""
    latest = max((o.last_done / link_time for o in outcomes.values() if o.ends), default=1.0)
    most = min(LONGEST, max(1.5, 0.5 * -(-latest // 0.5)))
    panels = [
        _panel(name, outcome, COLOURS[number % len(COLOURS)], link_time, most)
        for number, (name, outcome) in enumerate(outcomes.items())
    ]
    note = "what has come down each host's link, of one bundle, by time in T"
    return panel_picture(panels, title=title, note=note, unit="T", most=most)


def _panel(name: str, outcome: Outcome, colour: str, link_time: float, most: float) -> Panel:
    lines = [_line(host, outcome, colour, link_time, most) for host in sorted(outcome.progress)]
    holders = {host: at for host, at in outcome.cuts.items() if host not in outcome.progress}
    moments = [Moment(at / link_time, f"{host} leaves", CUT) for host, at in holders.items()]
    return Panel(f"{name}: {_end(outcome, link_time)}", lines, moments)


def _line(host: str, outcome: Outcome, colour: str, link_time: float, most: float) -> Line:
    end, cut = outcome.ends.get(host), outcome.cuts.get(host)
    until = min([*(moment for moment in (end, cut) if moment is not None), most * link_time])
    points = [(at / link_time, min(1.0, share)) for at, share in outcome.progress[host] if at < until]
    own = ASIDE if host in outcome.aside else CUT if cut is not None else colour
    if end is not None and end <= until:
        return Line([*points, (end / link_time, 1.0)], own, EndMark.DOT)
    return Line(points, own, EndMark.NONE if cut is None else EndMark.CROSS)


def _end(outcome: Outcome, link_time: float) -> str:
    last = f"last at {outcome.last_done / link_time:.2f} T" if outcome.ends else "nobody is done"
    return f"{last}, {len(outcome.failed)} not done" if outcome.failed else last
