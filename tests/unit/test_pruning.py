"""Which bundles count as unused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from records_of import bundle, job, snapshot

from torrentdist.cluster.session.znode_operations import Set
from torrentdist.master.bundles.bundle_operations import removal_ops
from torrentdist.master.bundles.pruning import prune_ops, unused, why_kept
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState, HostsUntil
from torrentdist.model.records import BundleState, JobStatus

SEEN = snapshot(
    [
        bundle("code"),
        bundle("lib"),
        bundle("pinned", pinned=True),
        bundle("told"),
        bundle("arriving", state=BundleState.UPLOADING),
        bundle("gone", state=BundleState.REMOVED),
        bundle("young", mtime=90.0),
        bundle("old"),
        bundle("of-a-job-that-ended"),
    ],
    jobs=[job("lives", ["code", "lib"]), job("ended", ["of-a-job-that-ended"], JobStatus.FINISHED)],
    assigned={"h1": ["told"]},
)


def test_only_what_nobody_uses_is_pruned() -> None:
    """If this fails, a prune takes the code from a job, or leaves bundles that nobody uses."""
    assert ["of-a-job-that-ended", "old"] == [entry.record.id for entry in unused(SEEN, 100.0, 50.0)]
    assert ["/code-distributor/of-a-job-that-ended", "/code-distributor/old"] == [
        op.path for op in prune_ops(SEEN, 100.0, 50.0) if isinstance(op, Set)
    ]


def test_what_stays_has_a_reason() -> None:
    """If this fails, an operator cannot tell why a prune frees nothing."""
    assert {
        "arriving": ("uploading",),
        "code": ("needed",),
        "lib": ("needed",),
        "of-a-job-that-ended": (),
        "old": (),
        "pinned": ("pinned",),
        "told": ("assigned",),
        "young": ("written_lately",),
    } == why_kept(SEEN, 100.0, 50.0)


@pytest.mark.parametrize("path", ["/jobs/j", "/distributions/old", "/assignments/h2"])
def test_what_a_damaged_record_may_need_is_not_pruned(path: str) -> None:
    """If this fails, one record that cannot be read costs a running job its code."""
    seen = msgspec.structs.replace(SEEN, damaged=frozenset({path}))

    assert "old" not in {entry.record.id for entry in unused(seen, 100.0, 50.0)}
    assert ("unreadable",) == why_kept(seen, 100.0, 50.0)[BundleId("old")]


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ({"state": DistributionState.STANDING, "everywhere": True}, "standing"),
        ({"state": DistributionState.RUNNING}, "distributed"),
        ({"state": DistributionState.COMPLETE, "ends_at": 200.0}, "promised"),
        ({"state": DistributionState.COMPLETE, "other_ends": (HostsUntil((), 200.0),)}, "promised"),
        ({"state": DistributionState.COMPLETE}, None),
    ],
)
def test_a_bundle_stays_while_a_distribution_claims_it(order: dict[str, Any], reason: str | None) -> None:
    """If this fails, a prune removes a bundle that a standing order will bring to the next host."""
    record = DistributionRecord(bundle=BundleId("old"), **order)
    seen = snapshot([bundle("old")], distributions=[record])

    assert {"old": (reason,) if reason else ()} == why_kept(seen, 100.0, 50.0)


@pytest.mark.case("A28")
def test_a_bundle_that_a_job_needs_is_not_removed() -> None:
    """If this fails, a job is left without its code or its dependency, and cannot start again
    anywhere.
    """
    killed = msgspec.structs.replace(SEEN, jobs={j.record.id: j for j in [job("dying", ["lib"], JobStatus.KILLED)]})

    for seen, needed, user in ((SEEN, "code", "lives"), (SEEN, "lib", "lives"), (killed, "lib", "dying")):
        with pytest.raises(TorrentdistError) as caught:
            removal_ops(seen, BundleId(needed))
        assert (9, True) == (caught.value.exit_code, user in caught.value.message)
