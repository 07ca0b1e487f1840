"""When the store of a host or a master is full, and what retention frees."""

import msgspec
import pytest
from records_of import bundle, master, snapshot

from torrentdist.host.process.host_condition import LEAST_SECS, SAMPLE_SECS, WEEK_SECS, Sample, fills_in, sampled
from torrentdist.master.bundles.bundle_views import cluster_view
from torrentdist.master.console.console_views import GrowthView
from torrentdist.master.console.pages.room_growth import growth, growth_words
from torrentdist.master.presence.attention import Troubles, attention
from torrentdist.model.ids import BundleId, MasterId, PeerId
from torrentdist.model.policies.policy_messages import RoomView
from torrentdist.swarm.directory.directory_values import HostConditions

DAY = 86_400.0
NOW = 100 * DAY
GIB = 1024**3


def test_a_sample_an_hour_of_the_last_week_is_kept() -> None:
    """The file would grow without end, or a disk that fills in an hour would count for a week."""
    samples: tuple[Sample, ...] = ()
    for step in range(20 * 24 * 4):
        samples = sampled(samples, NOW + step * SAMPLE_SECS / 4, step)

    assert int(WEEK_SECS / SAMPLE_SECS) == len(samples)
    assert samples == sampled(samples, samples[-1][0] + SAMPLE_SECS / 2, 7)
    assert ((NOW, 7),) == sampled([(NOW + DAY, 1)], NOW, 7), "the clock was set back"


@pytest.mark.parametrize(
    ("before", "room", "age", "expected"),
    [
        (10 * GIB, 5 * GIB, 7 * DAY, 7 * DAY),
        (10 * GIB, 9 * GIB, DAY, 9 * DAY),
        (10 * GIB, 11 * GIB, DAY, 0.0),
        (10 * GIB, 5 * GIB, LEAST_SECS - 1, 0.0),
    ],
)
def test_a_store_is_full_when_its_room_is_used_up_at_this_pace(
    before: int, room: int, age: float, expected: float
) -> None:
    """An operator would learn that a disk is full when it is."""
    assert expected == fills_in([(NOW - age, before), (NOW - 1, 0)], NOW, room)


def test_a_disk_that_is_full_within_a_day_needs_attention() -> None:
    """If this fails, only who looks at each host's page knows that disks fill tonight."""
    seen = snapshot(masters=["m1", "m2"])
    said = HostConditions(fills_in={PeerId("m1"): 5 * 3600.0, PeerId("m2"): 2 * DAY})
    found = attention(cluster_view(seen, MasterId("m1"), 0.0, said=said), Troubles(), 0.0)

    assert ["filling: m1: its disk is full in 5 h at the last week's pace"] == [entry.sentence for entry in found]


def test_growth_is_said_in_words() -> None:
    """Nobody could tell what the figures mean, or a store that says nothing would seem never to
    fill."""
    goes = bundle("goes")
    entry = msgspec.structs.replace(goes, record=msgspec.structs.replace(goes.record, size=7 * GIB))
    room = {BundleId(id_): RoomView(rules=[], stays=[], goes=why) for id_, why in (("goes", "older"), ("etl", ""))}
    said = HostConditions(free={PeerId("m1"): GIB}, fills_in={PeerId("m1"): 9 * DAY})
    view = cluster_view(snapshot(masters=["m1"]), None, 0.0, said=said)
    found = growth(snapshot([entry, bundle("etl")]), view.masters[0], room)

    assert master("m1").id == view.masters[0].id
    assert GrowthView(free_bytes=GIB, fills_in_secs=9 * DAY, freed_bytes=7 * GIB) == found
    assert (
        "It has room for 1.0 GiB of bundles, which is used up in 9 days at the pace of the last week. "
        "Retention frees 7.0 GiB next."
    ) == growth_words(found)
    assert "It has room for 1.0 GiB of bundles." == growth_words(
        GrowthView(free_bytes=GIB, fills_in_secs=None, freed_bytes=0)
    )
    assert "How much room it has is not known yet." == growth_words(growth(snapshot(), None, {}))
