"""The records as one sender may see them."""

from __future__ import annotations

import msgspec
import pytest
from records_of import bundle, job, snapshot, supervisor

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.master.bundles.bundle_views import bundle_counts, bundle_list, entry_of
from torrentdist.master.reads.readable_records import ReadableRecords, readable
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord
from torrentdist.model.policies.retention_record import RetentionRecord
from torrentdist.model.records import BundleState
from torrentdist.security.authorization import LOCAL, Principal, Proof, Role

pytestmark = pytest.mark.case("I1")

TEAM = Principal("ann", Role.SUBMITTER, Proof.TOKEN, bundles="etl-*", reads=("etl-*", "lib"))
HOST = SupervisorId("a")


def everything() -> ClusterSnapshot:
    return snapshot(
        [bundle("etl-1"), bundle("lib"), bundle("secret")],
        supervisors=[supervisor("a")],
        assigned={"a": ["etl-1", "secret"]},
        jobs=[job("mine", ["etl-1", "lib"]), job("mixed", ["etl-1", "secret"]), job("theirs", ["secret"])],
        distributions=[DistributionRecord(bundle=BundleId(id_), hosts=(HOST,)) for id_ in ("etl-1", "secret")],
        retention=[RetentionRecord(pattern=pattern, keep=1) for pattern in ("*", "etl-*", "secret*")],
    )


def test_what_may_not_be_read_is_absent() -> None:
    """A list would show another team's bundles, jobs, distributions or rules."""
    seen = readable(everything(), TEAM)

    assert ["etl-1", "lib"] == sorted(seen.bundles)
    assert ["mine"] == list(seen.jobs)
    assert ["etl-1"] == list(seen.distributions)
    assert ["*", "etl-*"] == sorted(entry.record.pattern for entry in seen.retention.values())
    assert ("etl-1",) == seen.assignments[HOST].record.bundles
    assert (2, 1, 1) == (len(seen.bundles), len(seen.jobs), len(seen.distributions))
    assert BundleId("secret") not in seen.bundles
    assert JobId("mixed") not in seen.jobs
    assert ["etl-1", "lib"] == [view.id for view in bundle_list(seen)]
    assert 2 == bundle_counts(seen).total


@pytest.mark.parametrize("state", list(BundleState))
def test_a_hidden_bundle_is_refused_like_one_that_never_was(state: BundleState) -> None:
    """An error would say that a bundle was removed, or is on its way."""
    seen = readable(snapshot([bundle("secret", state=state)]), TEAM)
    answers = []
    for name in ("secret", "absent"):
        with pytest.raises(TorrentdistError) as caught:
            entry_of(seen, BundleId(name))
        answers.append(str(caught.value.to_wire()).replace(name, ""))

    assert answers[0] == answers[1]


def test_a_sender_who_reads_everything_pays_nothing() -> None:
    """Every read of a cluster without patterns would cost more."""
    whole = everything()

    assert readable(whole, LOCAL) is whole
    assert readable(whole, msgspec.structs.replace(TEAM, reads=("etl-*", "*"))) is whole


def test_what_a_sender_sees_follows_the_records_and_the_rights() -> None:
    """A new bundle would stay hidden from its team, or a remembered answer go to another team."""
    records, before, after = ReadableRecords(), everything(), snapshot([bundle("etl-2")])
    other = msgspec.structs.replace(TEAM, reads=("secret",))
    first = records.of(before, TEAM)

    assert records.of(before, TEAM) is first
    assert ["secret"] == list(records.of(before, other).bundles)
    assert ["etl-2"] == list(records.of(after, TEAM).bundles)
    assert records.of(before, LOCAL) is before
