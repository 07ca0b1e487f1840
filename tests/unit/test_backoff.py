"""Pauses between attempts grow, are limited and spread; a failure is logged once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torrentdist.model.backoff import Retry, pause_secs

pytestmark = pytest.mark.case("G9")


def test_pauses_grow_and_are_bounded() -> None:
    """If this fails, a failing operation is tried all the time, or never again."""
    assert [1.0, 2.0, 4.0, 30.0, 30.0] == [pause_secs(n, 1.0, 30.0) for n in (1, 2, 3, 99, 10**9)]
    assert 1.0 == pause_secs(0, 1.0, 30.0)


@given(st.integers(0, 2**40), st.floats(0, 1))
def test_chance_spreads_a_pause_over_its_upper_half(failures: int, jitter: float) -> None:
    """If this fails, hosts that failed together come back together."""
    full = pause_secs(failures, 0.05, 10.0)

    assert full / 2 <= pause_secs(failures, 0.05, 10.0, jitter) <= full <= 10.0


def test_a_failure_is_news_once_until_the_next_success() -> None:
    """If this fails, one state floods a log, or its return is not logged."""
    again = Retry(1.0, 8.0)
    first = [again.failed(state) for state in ("refused", "away", "refused", "away", "away")]
    longest = again.pause_secs
    again.succeeded()
    after = again.pause_secs

    assert [True, True, False, False, False] == first
    assert 4.0 <= longest <= 8.0
    assert 0.5 <= after <= 1.0
    assert again.failed("refused")
