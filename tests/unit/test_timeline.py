"""The timeline of the Overview: a night at a glance."""

from __future__ import annotations

import pytest

from torrentdist.charts.curves import SPANS, Lane, timeline
from torrentdist.master.console.event_lines import EventLine, lane_of
from torrentdist.master.console.pages.overview_pages import LANES, past_part

DAY = 86_400.0


def test_what_happened_is_seen_when_it_happened() -> None:
    """If this fails, nobody can tell whether the failover or the distribution came first."""
    shown = timeline([Lane("Leaders", "/ui/events", [DAY - 1.0, DAY - 2.0, 3600.0, -5.0, DAY + 9.0], 0)], 0.0, DAY)

    assert f'<rect x="{SPANS - 1}" width="1" height="10"><title>Thu 23:30: 2</title>' in shown
    assert '<rect x="2" width="1" height="10"><title>Thu 01:00: 1</title>' in shown
    assert "<span>3</span>" in shown


def test_a_busy_week_is_as_large_as_a_busy_day() -> None:
    """If this fails, the first page grows with everything that ever happened."""
    lines = [EventLine(at=n / 10, who="ann", what="pin", result="ok") for n in range(10_000)]
    lines += [EventLine(at=n / 10, who="m1", what="leads") for n in range(10_000)]

    assert len(past_part(lines, ["m2"], 1000.0, 7)) < 20_000
    assert "No answer from m2" in past_part(lines, ["m2"], 1000.0, 7)


@pytest.mark.parametrize(
    ("what", "result", "lane"),
    [
        ("leads", "", "Leaders"),
        ("gone", "gone", "Gone"),
        ("distribution ended", "incomplete", "Failures"),
        ("distribution ended", "cancelled", "Distributions"),
        ("distribute", "ok", "Distributions"),
        ("fetch failed", "disk_full", "Failures"),
        ("pin", "ok", "Changes"),
        ("started", "", ""),
    ],
)
def test_a_line_has_a_lane(what: str, result: str, lane: str) -> None:
    """If this fails, a failure of the night hides among the ordinary changes."""
    assert lane == lane_of(EventLine(at=0.0, who="x", what=what, result=result))
    assert lane in (*LANES, "")
