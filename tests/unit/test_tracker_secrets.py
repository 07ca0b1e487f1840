"""The secret of tracker URLs after revocations."""

from __future__ import annotations

import pytest

from torrentdist.master.swarm.stock_announces import GRACE_SECS, tracker_secrets

NOW = 1_800_000_000.0
BEFORE = tracker_secrets("secret", {}, NOW)


@pytest.mark.case("F6")
def test_each_revocation_makes_another_secret() -> None:
    """The thief of a revoked host would announce itself under the keys that it knew."""
    first = tracker_secrets("secret", {"h1": NOW}, NOW)
    second = tracker_secrets("secret", {"h1": NOW, "h2": NOW + 1}, NOW + 1)
    again = tracker_secrets("secret", {"h1": NOW + 9, "h2": NOW + 1}, NOW + 9)

    assert 4 == len({BEFORE.current, first.current, second.current, again.current})
    assert first.current != tracker_secrets("another", {"h1": NOW}, NOW).current


def test_the_secret_before_a_revocation_is_good_for_a_while() -> None:
    """A revocation would cut off every download of a stock client at once, or let the old keys live
    for ever."""
    revoked = {"h1": NOW, "h2": NOW + 1}
    first = tracker_secrets("secret", {"h1": NOW}, NOW)
    soon, later, last = (tracker_secrets("secret", revoked, NOW + age) for age in (2, GRACE_SECS + 0.5, GRACE_SECS + 2))

    assert (first.current, BEFORE.current) == soon.former
    assert (first.current,) == later.former
    assert () == last.former
    assert soon.current == last.current


def test_all_masters_make_the_same_secret() -> None:
    """A stock client would be refused by every master but the one that made its metafile."""
    assert tracker_secrets("s", {"a": 1.0, "b": 2.0}, NOW) == tracker_secrets("s", {"b": 2.0, "a": 1.0}, NOW)
