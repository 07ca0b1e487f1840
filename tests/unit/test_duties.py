"""The leader's duties towards the records."""

from __future__ import annotations

from typing import Any

from records_of import bundle, digest_of, snapshot

from torrentdist.cluster.records.snapshot import BundleEntry
from torrentdist.master.leading.leader_duties import Duty, ForgetUpload, MarkAvailable, MarkLost, TrimTombstone, duties
from torrentdist.model.configuration.config import ReplicationConfig
from torrentdist.model.ids import BundleId
from torrentdist.model.records import BundleState

CONFIG = ReplicationConfig(abandon_secs=100.0, tombstone_secs=1000.0)


def due(*bundles: BundleEntry, **changes: Any) -> list[Duty]:
    facts: dict[str, Any] = {"active": set(), "lost": [], "led_for": 1e6, "server_now": 1e6, "config": CONFIG}
    return duties(snapshot(bundles), **{**facts, **changes})


def test_an_upload_is_available_once_a_live_master_holds_it() -> None:
    """A12: a bundle would be called available before there is a verified copy."""
    assert [] == due(bundle("a", state=BundleState.UPLOADING), led_for=0.0)
    assert [MarkAvailable(BundleId("a"))] == due(bundle("a", state=BundleState.UPLOADING, holders=["m1"]))


def test_a_dead_masters_record_makes_nothing_available() -> None:
    """A12: a dead master's copy, which cannot be downloaded, would count."""
    assert [] == due(bundle("a", state=BundleState.UPLOADING, holders=["gone"]), led_for=0.0)


def test_a_lost_bundle_comes_back_with_its_holder() -> None:
    """A17: a holder would return with a bundle that is still called lost."""
    assert [MarkAvailable(BundleId("a"))] == due(bundle("a", state=BundleState.LOST, holders=["m2"]))


def test_an_upload_is_forgotten_when_nobody_is_in_its_swarm_for_long() -> None:
    """A20: abandoned uploads would stay for ever."""
    upload = bundle("a", state=BundleState.UPLOADING, mtime=1e6 - 101.0)

    assert [ForgetUpload(BundleId("a"))] == due(upload)
    assert [] == due(upload, active={digest_of("a")})


def test_a_new_leader_forgets_no_upload_that_it_has_not_listened_for() -> None:
    """A20: right after a failover the directory is empty, and every running upload would look
    abandoned."""
    assert [] == due(bundle("a", state=BundleState.UPLOADING, mtime=0.0), led_for=59.0)


def test_a_tombstone_stays_until_every_registered_master_has_seen_it() -> None:
    """A16: a master that is slow to look would announce the bundle again."""
    old = {"state": BundleState.REMOVED, "mtime": 0.0}

    assert [] == due(bundle("a", holders=["m1"], **old))  # type: ignore[arg-type]
    assert [TrimTombstone(BundleId("a"))] == due(bundle("a", holders=["gone"], **old))  # type: ignore[arg-type]
    assert [] == due(bundle("a", state=BundleState.REMOVED, mtime=1e6 - 999.0))


def test_a_tombstone_stays_while_a_host_has_its_content() -> None:
    """A program may use a bundle for longer than its tombstone is kept. Its host would never hear
    again that it was removed, and keep it for ever."""
    old = bundle("a", state=BundleState.REMOVED, mtime=0.0)

    assert [] == due(old, active={digest_of("a")})
    assert [] == due(old, led_for=59.0)
    assert [TrimTombstone(BundleId("a"))] == due(old)


def test_a_bundle_is_lost_when_nobody_has_had_it_for_long() -> None:
    """A17: the next user of the bundle would be the first to find out that it is lost."""
    assert [MarkLost(BundleId("a"))] == due(bundle("a"), lost=[BundleId("a")])
    assert [] == due(bundle("a", holders=["m1"]), lost=[BundleId("a")])
