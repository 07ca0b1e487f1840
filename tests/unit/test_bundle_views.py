"""What a master shows of a bundle, computed from snapshots."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as record_of
from records_of import bundle, snapshot, supervisor

from torrentdist.cluster.records.snapshot import HostEntry
from torrentdist.master.bundles.bundle_views import (
    bundle_counts,
    bundle_view,
    cluster_view,
    replicated,
    with_lacking,
    with_stuck,
)
from torrentdist.model.access.host_record import HostRecord
from torrentdist.model.ids import BundleId, PeerId, SupervisorId
from torrentdist.model.records import BundleState
from torrentdist.model.wire.swarm_messages import SwarmEntry
from torrentdist.swarm.directory.directory_values import HeldBundles

B = BundleId("b")


@pytest.mark.parametrize(
    ("state", "holders", "over"),
    [
        (BundleState.UPLOADING, [], False),
        (BundleState.UPLOADING, ["m1", "m2"], False),
        (BundleState.AVAILABLE, ["m1"], False),
        (BundleState.AVAILABLE, ["m1", "m2"], True),
        (BundleState.AVAILABLE, ["m1", "m2", "m3"], True),
    ],
)
def test_an_upload_is_done_when_it_can_be_downloaded(state: BundleState, holders: list[str], over: bool) -> None:
    """A7: an upload would be acknowledged that is gone after the death of the leader."""
    assert over is replicated(snapshot([bundle("b", state=state, holders=holders)]), B, 2)


def test_a_wait_for_none_or_for_what_is_gone_is_over() -> None:
    """A wait for a removed bundle would last until its deadline."""
    assert replicated(snapshot([bundle("b", state=BundleState.UPLOADING)]), B, 0)
    assert replicated(snapshot([]), B, 2)
    assert replicated(snapshot([bundle("b", state=BundleState.REMOVED)]), B, 2)


def test_what_an_upload_waits_for_is_named_by_master() -> None:
    """A user whose upload has sent everything would wait for 20 s without knowing why."""
    entry = bundle("b", state=BundleState.UPLOADING, holders=["m1"])
    size = 100
    there = snapshot(
        [replace(entry, record=record_of(entry.record, size=size))], masters=["m1", "m2", "m3", "m4", "m5", "m6"]
    )
    said = SwarmEntry(digest=entry.record.digest, complete=False, size=size)
    heard = {
        PeerId("m2"): record_of(said, done=50),
        PeerId("m3"): record_of(said, done=size),
        PeerId("m4"): record_of(said, problem="disk full"),
        PeerId("m5"): record_of(said, complete=True, done=size),
    }

    expected = {
        "m2": "has 50 %",
        "m3": "writes it to disk",
        "m4": "disk full",
        "m5": "records its copy",
        "m6": "has not begun",
    }
    view = with_lacking(there, bundle_view(there, B), heard)
    assert (expected, size) == (view.lacking, view.arrived)


def test_ages_are_by_the_given_clock() -> None:
    """A leader whose clock is wrong would call a new bundle a year old."""
    there = snapshot([bundle("b")])

    assert bundle_view(there, B, 5.0).age_secs == 5.0
    assert bundle_view(there, B, -5.0).age_secs == 0.0
    assert bundle_view(there, B).age_secs is None


def test_a_supervisor_has_as_many_bundles_as_it_announces() -> None:
    """A host that downloaded three bundles would be shown with none, like a host that no master has
    heard."""
    there = snapshot(supervisors=[supervisor("s1"), supervisor("s2")], assigned={"s2": ["b"]})
    held = {PeerId("s1"): HeldBundles(3, 900, 500)}
    views = cluster_view(there, None, 0.0, None, held.get).supervisors

    assert [(3, 900, 500), (None, None, None)] == [(view.bundles, view.bytes, view.own_bytes) for view in views]


def test_certificates_that_end_within_a_week_are_told() -> None:
    """An operator would learn of a certificate that was not renewed when its host falls silent."""
    ends = {"soon": 3600.0, "late": -60.0, "none": 0.0, "next year": 3e7, "revoked": 60.0}
    entries = {
        id_: HostEntry(
            HostRecord(id=id_, expires_at=1e9 + left if left else 0.0, is_revoked=id_ == "revoked"), version=0
        )
        for id_, left in ends.items()
    }
    there = replace(snapshot(), hosts=entries)

    assert {"late": -60.0, "soon": 3600.0} == cluster_view(there, None, 1e9).expiring


def test_a_certificate_of_a_host_that_is_gone_is_told_for_a_week() -> None:
    """The alert for certificates would never end once a host is taken out of use."""
    ended = dict.fromkeys(("gone", "s", "m"), 1e9 - 8 * 86_400.0) | {"recent": 1e9 - 6 * 86_400.0}
    entries = {id_: HostEntry(HostRecord(id=id_, expires_at=at), version=0) for id_, at in ended.items()}
    there = replace(snapshot(masters=["m"]), supervisors={SupervisorId("s"): supervisor("s")}, hosts=entries)

    assert {"m", "recent", "s"} == set(cluster_view(there, None, 1e9).expiring)


def test_a_bundle_says_which_hosts_wait_for_it_in_vain() -> None:
    """If this fails, `bundle show` looks fine while an application waits for a bundle that no host
    can give.
    """
    view = bundle_view(snapshot([bundle("b", holders=["m1"])]), BundleId("b"))
    said = {
        PeerId("h1"): SwarmEntry(digest=view.digest, complete=False, problem="no peers"),
        PeerId("h2"): SwarmEntry(digest=view.digest, complete=False),
    }

    gone = snapshot(supervisors=[supervisor("h1")], assigned={"h1": [view.id], "h9": [view.id]})

    assert {"h1": "no peers", "h9": "its supervisor is not running"} == with_stuck(gone, view, said).stuck


def test_bundles_with_too_few_copies_are_counted() -> None:
    """A reader of some bundles would see that all is well while two of them have too few copies."""
    few = [bundle("a", min_replicas=2, holders=["m1"]), bundle("b", min_replicas=1)]
    others = [bundle("c", min_replicas=1, holders=["m1"]), bundle("d", state=BundleState.UPLOADING, min_replicas=2)]

    assert 2 == bundle_counts(snapshot([*few, *others])).under_replicated
