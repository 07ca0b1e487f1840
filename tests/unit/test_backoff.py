"""Pauses between attempts grow, are limited and spread; a failure is logged once."""

from __future__ import annotations

import time
import urllib.error
from email.message import Message

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torrentdist.master.replication.fetch_attempts import FetchAttempts
from torrentdist.model.backoff import SHORTEST_PAUSE_SECS, Retry, kind_of, pause_secs, secs_until_retry
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest

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


def test_each_failure_doubles_the_pause_once() -> None:
    """If this fails, what failed twice is tried again minutes later."""
    again = Retry(1.0, 100.0)

    for failures in range(1, 6):
        again.failed("away")
        assert 2 ** (failures - 2) <= again.pause_secs <= 2 ** (failures - 1)


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


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TorrentdistError("unreachable", url="a", detail="b"), "unreachable"),
        (OSError(28, "full"), "OSError"),
        (urllib.error.HTTPError("http://a", 0, "", Message(), None), "HTTPError"),
    ],
)
def test_the_kind_of_a_failure_is_its_code_or_its_class(error: Exception, expected: str) -> None:
    """If this fails, failures of two kinds are logged as one, or each attempt is news."""
    assert expected == kind_of(error)


@pytest.mark.parametrize(
    ("not_before", "expected"),
    [
        ([], 60.0),
        ([13.0, 15.0], 1.0),
        ([11.0, 15.0], SHORTEST_PAUSE_SECS),
        ([10.0, 15.0], 3.0),
        ([1.0], 60.0),
        ([999.0], 60.0),
    ],
)
def test_only_a_retry_that_the_plan_has_not_seen_ends_a_wait(not_before: list[float], expected: float) -> None:
    """A daemon would plan 20 times a second for a retry that it cannot begin, or a retry that came
    due while the plan was carried out would wait for minutes."""
    assert expected == secs_until_retry(not_before, planned_at=10.0, now=12.0, longest=60.0)


def test_a_master_looks_again_at_once_if_a_pause_ended_during_its_round() -> None:
    """A master would fetch a replica minutes late, because its disk was slow for a moment."""
    attempts, digest = FetchAttempts(), Digest("1" * 64)
    began = time.monotonic()
    attempts.failed(digest, TorrentdistError("unreachable", url="a", detail="b"), uploading=False)
    [due] = attempts.not_before().values()

    assert began < due
    assert 0.0 < attempts.secs_until_next(began, 120.0) <= 1.0
    assert 120.0 == attempts.secs_until_next(due, 120.0)
