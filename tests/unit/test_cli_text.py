"""Values as people write and read them."""

from __future__ import annotations

import math

import pytest

from torrentdist.model.policies.written_amounts import parse_duration, parse_share
from torrentdist_cli.frame.rendering import duration, percent, size, unicode_path


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5400), ("7d", 604800), ("1.5h", 5400), ("250ms", 0.25), ("0", 0)],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    """A deadline that is read wrong ends a transfer early, or never."""
    parsed = parse_duration(text)

    assert parsed == seconds


@pytest.mark.parametrize("text", ["", "x", "5x", "-5", "5 m 3", "m5", "1e3", "inf", "nan", "٣"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """A nonsensical deadline would become zero or endless."""
    with pytest.raises(ValueError, match="give a duration"):
        parse_duration(text)


@pytest.mark.parametrize(("text", "share"), [("100%", 1), ("50%", 0.5), ("0.5", 0.5), ("1", 1), ("0", 0), ("0%", 0)])
def test_shares_are_read(text: str, share: float) -> None:
    """A wait for the wrong share says that the fleet is done when it is not."""
    parsed = parse_share(text)

    assert parsed == share


@pytest.mark.parametrize("text", ["", "%", "101%", "2", "-1", "all", "nan"])
def test_what_is_no_share_is_refused(text: str) -> None:
    """`--wait 50` is 50 % to some and 5000 % to others; it must be neither."""
    with pytest.raises(ValueError, match="give a share"):
        parse_share(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1024**2 - 1, "1.0 MiB"), (5 * 1024**3, "5.0 GiB")],
)
def test_sizes_are_shown_in_the_unit_that_fits(count: int, text: str) -> None:
    """A size of the wrong unit is off by a factor of a thousand."""
    shown = size(count)

    assert shown == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.2s"), (59.6, "1m00s"), (3725, "1h02m"), (90000, "1d01h"), (None, "?"), (math.inf, "?"), (-1, "?")],
)
def test_durations_are_shown_short(seconds: float | None, text: str) -> None:
    """An unknown estimate would look like a number."""
    shown = duration(seconds)

    assert shown == text


def test_only_the_whole_is_a_hundred_percent() -> None:
    """99.99 % shown as 100 % looks like a transfer that hangs."""
    shown = percent(0.9999)

    assert shown == "99%"


def test_a_path_that_is_no_unicode_can_still_be_reported() -> None:
    """After a long download the report of its result would fail because of the name of its
    place."""
    shown = unicode_path("/tmp/\udcff")

    assert shown == "/tmp/\ufffd"
