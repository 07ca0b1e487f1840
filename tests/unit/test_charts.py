"""Charts as functions of values."""

from __future__ import annotations

import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest

from bench.swarm.panels import EndMark, Line, Moment, Panel, panel_picture
from torrentdist.charts.bars import Bar, bar_plot
from torrentdist.charts.curves import Curve, step_plot
from torrentdist.charts.matrix import matrix_plot
from torrentdist.charts.quantities import count, percent, seconds, size
from torrentdist.charts.svg import SERIES, axis, style, ticks

HOSTILE = "</svg><script>alert(1)</script>"


def svg(markup: str) -> ElementTree.Element:
    found = re.search(r"<svg.*</svg>", markup, re.DOTALL)
    assert found is not None
    return ElementTree.fromstring(found[0])


@pytest.mark.parametrize("most", [0.0, 0.3, 1.0, 7.0, 9.99, 10.0, 123.0, 86400.0, 1e15])
def test_an_axis_begins_at_zero_and_holds_everything(most: float) -> None:
    """A mark beyond the axis would mislead, and an axis that does not begin at zero makes small
    differences look large."""
    found = ticks(most)

    assert 0.0 == found[0]
    assert most <= found[-1] <= max(1.0, 2 * most)
    assert 2 <= len(found) <= 8


@pytest.mark.parametrize("most", [1, 3, 12, 17, 99, 1234])
def test_an_axis_of_hosts_has_no_halves_and_holds_everything(most: int) -> None:
    """A bar of twelve hosts left the picture because the axis ended at ten."""
    found = axis(most, count)

    assert all(value == int(value) for value, _ in found)
    assert most <= found[-1][0] <= 2 * most + 4


def test_values_read_as_people_say_them() -> None:
    """Users would have to read raw bytes and seconds."""
    said = [size(0), size(1536), size(200 << 30), seconds(0.25), seconds(42), seconds(600), seconds(10_000)]

    assert ["0 B", "1.5 KiB", "200 GiB", "0.25 s", "42 s", "10.0 min", "2.8 h"] == said
    assert ["0%", "0.1%", "50%", "99.9%", "100%"] == [percent(share) for share in (0.0, 0.001, 0.5, 0.999, 1.0)]


def test_marks_are_inside_their_picture() -> None:
    """Marks outside of the picture would not be visible."""
    bars = [Bar(f"host-{n}", [n * 1.5, 2.0, 0.0], "slow disk") for n in range(12)]
    plots = [
        step_plot([Curve("a", [(1.0, 0.5), (63.0, 1.0)])], x_label="x", y_label="y", title="t"),
        bar_plot(bars, ("a", "b", "c"), form=seconds, x_label="x", title="t"),
        bar_plot([Bar("b", [3e9])], ("bytes",), form=size, x_label="x", title="t"),
        matrix_plot({(f"r{a}", f"r{b}"): 1.0 for a in range(9) for b in range(9)}, form=size, title="t"),
    ]
    outside = []
    for plot in map(svg, plots):
        _, _, width, height = map(float, plot.attrib["viewBox"].split())
        for mark in plot.iter("rect"):
            x, y, w, h = (float(mark.attrib[name]) for name in ("x", "y", "width", "height"))
            outside += [mark.attrib] if x < 0 or y < 0 or x + w > width or y + h > height else []

    assert not outside


@pytest.mark.parametrize(
    ("most", "form", "unit"), [(90, seconds, "s"), (200, seconds, "min"), (3 << 30, size, "GiB"), (9, count, "")]
)
def test_an_axis_has_one_unit(most: float, form: Callable[[float], str], unit: str) -> None:
    """A reader would have to convert between 60 s, 90 s and 2 min."""
    said = [text for _, text in axis(most, form)]

    assert {unit} == {text.partition(" ")[2] for text in said}
    assert len(said) == len(set(said)) >= 3


def test_a_label_that_is_cut_says_all_of_it_when_pointed_at() -> None:
    """Two hosts whose names differ in the middle would look the same."""
    name = "rack-17-" + "x" * 60 + "-host-23"
    texts = svg(bar_plot([Bar(name, [1.0])], ("a",), form=seconds, x_label="x", title="t")).iter("text")
    label = next(text for text in texts if "…" in "".join(text.itertext()))

    assert label[0].text == name
    assert len(label[0].tail or "") * 5 < float(label.attrib["x"])


def test_names_from_outside_stay_text_in_every_chart() -> None:
    """If this fails, a host's or a bundle's name runs a script in its reader's browser."""
    line = Line([(0.0, 0.0), (1.0, 1.0)], "#000", EndMark.CROSS)
    panel = Panel(HOSTILE, [line], [Moment(0.5, HOSTILE, "#000")])
    charts = [
        step_plot([Curve(HOSTILE, [(1.0, 1.0)])], x_label=HOSTILE, y_label=HOSTILE, title=HOSTILE),
        bar_plot([Bar(HOSTILE, [1.0], HOSTILE)], (HOSTILE,), form=count, x_label=HOSTILE, title=HOSTILE),
        matrix_plot({(HOSTILE, HOSTILE): 1.0}, form=count, title=HOSTILE),
        panel_picture([panel], title=HOSTILE, note=HOSTILE, unit=HOSTILE, most=2.0),
    ]

    assert [] == [chart for chart in charts if "<script" in chart]
    assert all(len(svg(chart)) for chart in charts)


def test_the_style_sheet_has_a_colour_for_every_series_in_light_and_dark() -> None:
    """If this fails, a curve is drawn without a colour."""
    colours = re.findall(r"--s(\d): #", style())

    assert [str(number) for number in range(SERIES)] * 2 == colours


def test_panels_share_their_axes_and_leave_no_line_out() -> None:
    """If this fails, two programs are compared on different scales, or a slow host is missing."""
    lines = [Line([(0.0, 0.0), (n / 10, 1.0)], "#000", EndMark.DOT) for n in range(1, 6)]
    picture = svg(panel_picture([Panel("a", lines), Panel("b", lines)], title="t", note="n", unit="T", most=1.0))
    tags = [element.tag.rpartition("}")[2] for element in picture.iter()]
    marks = [float(text.attrib["x"]) for text in picture.iter() if (text.text or "").endswith(" T")]

    assert (10, 10) == (tags.count("polyline"), tags.count("circle"))
    assert [x + 320 for x in marks[:3]] == marks[3:]
