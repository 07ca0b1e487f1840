"""Whether an elected master may act, and when a bundle counts as lost."""

from __future__ import annotations

from collections.abc import Iterable

from torrentdist.cluster.snapshot import BundleEntry, ClusterSnapshot, JobEntry
from torrentdist.master import gate
from torrentdist.model.ids import BundleId, Digest, JobId, MasterId, StoreId
from torrentdist.model.records import (
    BundleRecord,
    BundleState,
    JobRecord,
    JobStatus,
    MasterRecord,
    ReplicaRecord,
)

ME, OTHER = MasterId("m1"), MasterId("m2")


def digest_of(name: str) -> Digest:
    return Digest(name.encode().hex().ljust(64, "0"))


def master(id_: MasterId) -> MasterRecord:
    return MasterRecord(
        id=id_, host="127.0.0.1", port=1, url="http://x", swarm_port=2, store=StoreId(f"s-{id_}"), version="1",
        started_at=0.0,
    )  # fmt: skip


def bundle(name: str, *, state: BundleState = BundleState.AVAILABLE, holders: Iterable[MasterId] = ()) -> BundleEntry:
    record = BundleRecord(
        id=BundleId(name), digest=digest_of(name), size=1, files=1, state=state, min_replicas=1, created_at=0.0
    )
    replicas = {m: ReplicaRecord(master=m, store=StoreId(f"s-{m}"), digest=record.digest) for m in holders}
    return BundleEntry(record, 0, 0.0, replicas)


def job(name: str, needs: list[str], status: JobStatus = JobStatus.ACTIVE) -> JobEntry:
    first, *rest = (BundleId(n) for n in needs)
    record = JobRecord(id=JobId(name), name=name, status=status, bundle=first, dependencies=tuple(rest))
    return JobEntry(record, 0, 0.0)


def snapshot(bundles: Iterable[BundleEntry], jobs: Iterable[JobEntry] = ()) -> ClusterSnapshot:
    return ClusterSnapshot(
        masters={m: master(m) for m in (ME, OTHER)},
        bundles={b.record.id: b for b in bundles},
        jobs={j.record.id: j for j in jobs},
    )


def test_a_missing_dependency_bars_from_leading() -> None:
    """A11: a master that has the code but not what the code depends on would lead into failing workers."""
    seen = snapshot([bundle("code"), bundle("lib")], [job("j", ["code", "lib"])])

    assert ["lib"] == gate.missing(seen, {digest_of("code")})


def test_only_live_jobs_count() -> None:
    """A11: a finished job that still bars a master would keep a cluster leaderless for nothing."""
    seen = snapshot([bundle("code")], [job("j", ["code"], JobStatus.FINISHED)])

    assert [] == gate.missing(seen, set())


def test_a_lost_bundle_bars_nobody() -> None:
    """A17: one bundle that is lost for good must not keep everybody from leading."""
    seen = snapshot([bundle("code", state=BundleState.LOST)], [job("j", ["code"])])

    assert [] == gate.missing(seen, set())


def test_a_leader_gives_way_only_to_somebody_who_has_it_all() -> None:
    """A9: giving way to a master that lacks another bundle would pass leadership around in a circle."""
    seen = snapshot([bundle("a", holders=[OTHER]), bundle("b", holders=[ME])])

    assert gate.others_have(seen, [BundleId("a")])
    assert not gate.others_have(seen, [BundleId("a"), BundleId("b")])


def test_absence_is_counted_from_the_first_time_that_nobody_had_it() -> None:
    """A17: a clock that starts anew with every look would never call anything lost."""
    seen = snapshot([bundle("a"), bundle("held", holders=[OTHER])])
    since = gate.absences({}, seen, lambda _: False, 10.0)
    since = gate.absences(since, seen, lambda _: False, 20.0)

    assert {BundleId("a"): 10.0} == since
    assert ["a"] == gate.lost(since, 25.0, 15.0)


def test_a_supervisors_copy_ends_the_absence() -> None:
    """A17: a bundle that a supervisor still has is not lost, and its time starts anew afterwards."""
    seen = snapshot([bundle("a")])
    since = gate.absences({}, seen, lambda _: False, 10.0)
    since = gate.absences(since, seen, lambda _: True, 20.0)

    assert {} == since
