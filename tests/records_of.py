"""Records and snapshots for tests of decisions; a test states only the values that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import (
    AssignmentEntry,
    BundleEntry,
    ClusterSnapshot,
    DistributionEntry,
    JobEntry,
    PresenceEntry,
    RetentionEntry,
)
from torrentdist.model.access.host_record import PresenceRecord
from torrentdist.model.ids import BundleId, Digest, JobId, MasterId, StoreId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord
from torrentdist.model.policies.retention_record import RetentionRecord
from torrentdist.model.records import (
    AssignmentRecord,
    BundleRecord,
    BundleState,
    ClusterRecord,
    JobRecord,
    JobStatus,
    MasterRecord,
    ReplicaRecord,
    SupervisorRecord,
)


def digest_of(name: str) -> Digest:
    return Digest(name.encode().hex().ljust(64, "0")[:64])


def store_of(master: MasterId) -> StoreId:
    return StoreId(f"store-{master}")


def master(id_: str) -> MasterRecord:
    return MasterRecord(
        id=MasterId(id_),
        host="127.0.0.1",
        port=1,
        url=f"http://{id_}",
        swarm_port=2,
        store=store_of(MasterId(id_)),
        version="1",
        started_at=0.0,
    )


def supervisor(id_: str, **labels: str) -> SupervisorRecord:
    return SupervisorRecord(
        id=SupervisorId(id_),
        host="127.0.0.1",
        gateway="http://127.0.0.1:1",
        swarm_port=2,
        store=StoreId(f"store-{id_}"),
        version="1",
        labels=labels,
    )


def bundle(
    name: str,
    *,
    content: str | None = None,
    state: BundleState = BundleState.AVAILABLE,
    holders: Iterable[str] = (),
    pinned: bool = False,
    mtime: float = 0.0,
    min_replicas: int = 1,
    created_at: float = 0.0,
) -> BundleEntry:
    """Makes a bundle record with a digest from its name, or from `content`, and replica records of
    `holders` in their own stores."""
    record = BundleRecord(
        id=BundleId(name),
        digest=digest_of(content or name),
        size=1,
        files=1,
        state=state,
        min_replicas=min_replicas,
        created_at=created_at,
        pinned=pinned,
    )
    replicas = {
        MasterId(m): ReplicaRecord(master=MasterId(m), store=store_of(MasterId(m)), digest=record.digest)
        for m in holders
    }
    return BundleEntry(record, 0, mtime, replicas)


def job(name: str, needs: list[str], status: JobStatus = JobStatus.ACTIVE) -> JobEntry:
    first, *rest = (BundleId(n) for n in needs)
    record = JobRecord(id=JobId(name), name=name, status=status, bundle=first, dependencies=tuple(rest))
    return JobEntry(record, 0, 0.0)


def snapshot(
    bundles: Iterable[BundleEntry] = (),
    *,
    masters: Iterable[str] = ("m1", "m2", "m3"),
    supervisors: Iterable[SupervisorRecord] = (),
    assigned: Mapping[str, Iterable[str]] | None = None,
    jobs: Iterable[JobEntry] = (),
    distributions: Iterable[DistributionRecord] = (),
    retention: Iterable[RetentionRecord] = (),
    known: Iterable[PresenceRecord] = (),
    known_masters: Iterable[PresenceRecord] = (),
    present: bool = True,
) -> ClusterSnapshot:
    return ClusterSnapshot(
        cluster=ClusterRecord(id="c", announce_key="k") if present else None,
        masters={MasterId(m): master(m) for m in masters},
        supervisors={s.id: s for s in supervisors},
        bundles={b.record.id: b for b in bundles},
        assignments={
            SupervisorId(id_): AssignmentEntry(AssignmentRecord(bundles=tuple(BundleId(b) for b in names)), 3)
            for id_, names in (assigned or {}).items()
        },
        jobs={j.record.id: j for j in jobs},
        distributions={d.bundle: DistributionEntry(d, 0) for d in distributions},
        known_supervisors={SupervisorId(p.id): PresenceEntry(p, 0) for p in known},
        known_masters={MasterId(p.id): PresenceEntry(p, 0) for p in known_masters},
        retention={paths.name(paths.retention(r.pattern)): RetentionEntry(r, 0) for r in retention},
    )
