"""When a host's disk reaches its mark."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from records_of import bundle, snapshot

from torrentdist.cluster.records.snapshot import BundleEntry
from torrentdist.master.console.console_views import GrowthView
from torrentdist.master.console.pages.room_growth import growth, growth_words
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord
from torrentdist.model.policies.policy_messages import RoomView
from torrentdist.model.wire.cluster_messages import HostStateView

HOST = SupervisorId("h1")
DAY = 86_400.0
NOW = 100 * DAY
GIB = 1024**3


def sized(name: str, age_days: float) -> BundleEntry:
    entry = bundle(name, created_at=NOW - age_days * DAY)
    return dataclasses.replace(entry, record=msgspec.structs.replace(entry.record, size=7 * GIB))


def state(free: int, limit: int = 0) -> HostStateView:
    return HostStateView(
        published_bytes=28 * GIB, arriving_bytes=0, free_bytes=free, limit_bytes=limit, reserve_bytes=GIB,
        upload_rate=0.0, download_rate=0.0, peers=0, errors={},
    )  # fmt: skip


def found(said: HostStateView | None) -> GrowthView:
    """Returns the growth of a host that keeps a new bundle, an old one that it was told lately, and
    two old ones, of which a rule removes one."""
    order = DistributionRecord(bundle=BundleId("sent"), hosts=(HOST,), begun_at=NOW - DAY)
    seen = snapshot([sized("new", 1), sized("sent", 50), sized("old", 8), sized("goes", 9)], distributions=[order])
    room = {id_: RoomView(rules=[], stays=[], goes="older" if id_ == "goes" else "") for id_ in seen.bundles}
    return growth(seen, HOST, room, said, NOW)


@pytest.mark.parametrize(
    ("said", "days"), [(state(free=21 * GIB), 10), (state(free=99 * GIB, limit=32 * GIB), 2), (state(free=0), 0)]
)
def test_a_disk_reaches_its_mark_at_the_pace_of_the_last_week(said: HostStateView, days: float) -> None:
    """An operator would learn that a disk is full when it is."""
    assert GrowthView(week_bytes=14 * GIB, freed_bytes=7 * GIB, mark_secs=days * DAY) == found(said)


def test_growth_is_said_in_words() -> None:
    """Nobody could tell what the figures mean, or a host without an answer would seem never to
    fill."""
    pace = "14.0 GiB in the last week"

    assert f"It reaches its mark in 10 days at the pace of the last week ({pace}). Retention frees 7.0 GiB next." == (
        growth_words(found(state(free=21 * GIB)))
    )
    assert f"It was told to keep {pace}. Retention frees 7.0 GiB next." == growth_words(found(None))
    assert "It was told to keep nothing new in the last week." == (
        growth_words(GrowthView(week_bytes=0, freed_bytes=0, mark_secs=None))
    )
