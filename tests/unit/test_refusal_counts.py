"""Refusals, counted by source."""

from __future__ import annotations

import pytest

from torrentdist.host.telemetry.refusal_counts import MOST_SOURCES, OTHERS, PERIOD_SECS, RefusalCounts
from torrentdist.model.events import AccessAudited

pytestmark = pytest.mark.case("F14")


def refusal(source: str, result: str = "unauthorized", operation: str = "GET /v1/bundles") -> AccessAudited:
    return AccessAudited(
        who="anonymous", sender_role="anyone", how="none", operation=operation, target="", bundle="",
        source=source, result=result,
    )  # fmt: skip


def test_one_source_costs_one_entry_for_each_kind_of_refusal() -> None:
    """A stranger could fill the disk with lines of the audit."""
    counts = RefusalCounts()
    for number in range(1000):
        counts.add(refusal("10.0.0.1", "unauthorized" if number % 4 else "role_needed"), 0.0)

    assert [] == counts.due(PERIOD_SECS / 2)
    assert {("unauthorized", 750), ("role_needed", 250)} == {(f.result, f.count) for f in counts.due(PERIOD_SECS)}
    assert [] == counts.due(2 * PERIOD_SECS)


def test_many_sources_are_bounded() -> None:
    """A botnet could take all of a master's memory."""
    counts = RefusalCounts()
    for number in range(10 * MOST_SOURCES):
        counts.add(refusal(f"s{number}"), 0.0)
    told = counts.due(PERIOD_SECS)

    assert len(told) <= MOST_SOURCES + 1
    assert 10 * MOST_SOURCES == sum(fact.count for fact in told)
    assert OTHERS in {fact.source for fact in told}
