"""Whether an elected master may act, and when a bundle counts as lost."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from records_of import bundle, digest_of, job, snapshot

from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import SessionState
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.master.leading import gate
from torrentdist.master.leading.lost_bundles import LostBundles
from torrentdist.master.master_session import MasterSession
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.ids import BundleId, Digest, MasterId
from torrentdist.model.records import BundleState, JobStatus


def test_a_missing_dependency_bars_from_leading() -> None:
    """A11: a master that has the code but lacks a dependency would lead, and workers would fail."""
    seen = snapshot([bundle("code"), bundle("lib")], jobs=[job("j", ["code", "lib"])])

    assert ["lib"] == gate.missing(seen, {digest_of("code")})


def test_only_live_jobs_count() -> None:
    """A11: a finished job would keep the cluster leaderless for nothing."""
    seen = snapshot([bundle("code")], jobs=[job("j", ["code"], JobStatus.FINISHED)])

    assert [] == gate.missing(seen, set())


def test_a_lost_bundle_bars_nobody() -> None:
    """A17: one lost bundle would keep every master from leading."""
    seen = snapshot([bundle("code", state=BundleState.LOST)], jobs=[job("j", ["code"])])

    assert [] == gate.missing(seen, set())


def test_a_bundle_that_was_never_uploaded_bars_nobody() -> None:
    """A11: a record that names an unknown bundle would end every election with an error."""
    seen = snapshot([bundle("code")], jobs=[job("j", ["code", "unknown"])])

    assert ["code"] == gate.missing(seen, set())
    assert [] == gate.missing(seen, set(), wanted=[BundleId("unknown")])


@pytest.mark.parametrize(
    ("state", "bars"),
    [
        (BundleState.AVAILABLE, True),
        (BundleState.UPLOADING, True),
        (BundleState.LOST, False),
        (BundleState.REMOVED, False),
    ],
)
def test_the_state_of_a_bundle_decides_whether_it_bars(state: BundleState, bars: bool) -> None:
    """A11, A17: a master without the code would lead, or a removed bundle would bar all."""
    seen = snapshot([bundle("code", state=state, holders=["m2"])], jobs=[job("j", ["code"])])

    assert (["code"] if bars else []) == gate.missing(seen, set())
    assert (state is BundleState.AVAILABLE) == gate.behind(seen, set())


def test_a_master_is_behind_while_others_hold_what_it_lacks() -> None:
    """A10: a bundle that no master holds, or that is on its way to all, would keep a new master out
    of the queue."""
    seen = snapshot([bundle("held", holders=["m2"]), bundle("gone"), bundle("new", state=BundleState.UPLOADING)])

    assert gate.behind(seen, set())
    assert not gate.behind(seen, {digest_of("held")})


def test_a_leader_gives_way_only_to_somebody_who_has_it_all() -> None:
    """A9: leadership would go round in a circle among masters that each lack a bundle."""
    seen = snapshot([bundle("a", holders=["m2"]), bundle("b", holders=["m1"])])

    assert gate.others_have(seen, [BundleId("a")])
    assert not gate.others_have(seen, [BundleId("a"), BundleId("b")])
    assert not gate.others_have(seen, [])


def test_a_leader_keeps_what_nobody_could_take_over() -> None:
    """A9: a leader that lost one bundle would give way to a master that lacks another, and nobody
    would lead until one of them has fetched it."""
    one, all_ = (
        snapshot([bundle("a", holders=["m2"]), bundle("b", holders=held), bundle("c", state=BundleState.LOST)])
        for held in (["m1"], ["m1", "m2"])
    )
    wanted = [BundleId(name) for name in ("a", "b", "c", "unknown")]

    assert gate.yields_for(one, {digest_of("b")}, wanted) is None
    assert "a" == gate.yields_for(all_, {digest_of("b")}, wanted)
    assert gate.yields_for(all_, {digest_of("a"), digest_of("b")}, wanted) is None


def absent(seen: ClusterSnapshot) -> dict[BundleId, Digest]:
    return {bundle: digest for bundle in seen.bundles if (digest := gate.absent(seen, bundle)) is not None}


def test_absence_is_counted_from_the_first_time_that_nobody_had_it() -> None:
    """A17: a clock that restarts with every look would never call a bundle lost."""
    seen = snapshot([bundle("a"), bundle("held", holders=["m2"])])
    since = gate.absences({}, absent(seen), lambda _: False, 10.0)
    since = gate.absences(since, absent(seen), lambda _: False, 20.0)

    assert {BundleId("a"): 10.0} == since
    assert ["a"] == gate.lost(since, 25.0, 15.0)


def test_a_supervisors_copy_ends_the_absence() -> None:
    """A17: a bundle that a supervisor still has would be called lost."""
    seen = snapshot([bundle("a")])
    since = gate.absences({}, absent(seen), lambda _: False, 10.0)
    since = gate.absences(since, absent(seen), lambda _: True, 20.0)

    assert {} == since


def test_a_bundle_is_lost_only_after_its_whole_time() -> None:
    """A17: a bundle would be given up while its last holder restarts."""
    since = {BundleId("b"): 10.0, BundleId("a"): 10.0, BundleId("c"): 10.1}

    assert ["a", "b"] == gate.lost(since, 25.0, 15.0)
    assert [] == gate.lost(since, 24.9, 15.0)


def test_only_an_available_bundle_can_be_absent() -> None:
    """A17: an upload that has just begun, or a removed bundle, would be called lost."""
    states = [BundleState.AVAILABLE, BundleState.UPLOADING, BundleState.LOST, BundleState.REMOVED]
    seen = snapshot([*(bundle(f"b-{state}", state=state) for state in states), bundle("held", holders=["m1"])])

    assert {BundleId("b-available"): digest_of("b-available")} == absent(seen)


def found_by_a_look(watched: LostBundles) -> list[BundleId]:
    """Returns which bundles are lost after the first look of a watch."""

    async def look() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await watched.watch()

    asyncio.run(look())
    return watched.now()


def test_a_look_that_fails_counts_anew() -> None:
    """If this fails, a bundle is marked lost although its copy came back while the watch for
    copies failed."""
    mirror, known = SimpleNamespace(fresh=True, snapshot=snapshot([bundle("etl")])), {digest_of("etl"): False}
    session: Any = SimpleNamespace(mirror=mirror, zookeeper=None)
    watched = LostBundles(session, known.__getitem__, lost_secs=0.0)

    before = found_by_a_look(watched)
    known.clear()
    with pytest.raises(KeyError):
        found_by_a_look(watched)

    assert (["etl"], []) == (before, watched.now())


def test_the_time_of_an_absence_begins_anew_without_zookeeper() -> None:
    """A17: a master that was cut off would mark a bundle lost, whose holder was registered all the
    time. Records that are just being read prove nothing either way."""
    zookeeper = ZooKeeper(ZooKeeperConfig())
    mirror = Mirror(zookeeper)
    mirror.snapshot = snapshot([bundle("etl")])
    watched = LostBundles(MasterSession(MasterId("m1"), zookeeper, mirror), lambda _: False, lost_secs=0.0)
    found = []
    for state, marks in ((SessionState.CONNECTED, -1), (SessionState.CONNECTED, 0), (SessionState.SUSPENDED, 0)):
        zookeeper.state, mirror._marks = state, marks
        found.append(found_by_a_look(watched))

    assert [["etl"], ["etl"], []] == found
