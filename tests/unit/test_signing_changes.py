"""What a master records of signatures, without knowing any key."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace
from records_of import bundle, digest_of, snapshot

from torrentdist.cluster.records.record_schema import spoken
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Create, Set
from torrentdist.master.bundles.bundle_operations import signing_ops
from torrentdist.master.bundles.bundle_views import bundle_list, bundle_view
from torrentdist.master.jobs.job_operations import NewJob, submit_ops
from torrentdist.model.access.envelope import MAX_SIGNATURES, Envelope
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.records import BundleRecord, JobRecord, decode, encode
from torrentdist.security.signing.signatures import BundleStatement, JobStatement, SignedContent, sign

pytestmark = pytest.mark.case("F12")
KEY = Ed25519PrivateKey.generate()
ETL = BundleId("etl")


def statement(**changes: Any) -> Envelope:
    facts = {"cluster": "prod", "id": ETL, "digest": digest_of("etl"), **changes}
    return sign(BundleStatement(**facts), KEY)


def signed(seen: ClusterSnapshot, envelope: Envelope) -> BundleRecord:
    (op,) = signing_ops(seen, ETL, envelope)
    assert isinstance(op, Set)
    return decode(op.data, BundleRecord, path=op.path)


def seen_with(*envelopes: Envelope) -> ClusterSnapshot:
    entry = bundle("etl")
    return snapshot([replace(entry, record=msgspec.structs.replace(entry.record, signatures=envelopes))])


def test_signatures_are_added_once_and_in_a_bounded_number() -> None:
    """A retry would add a second one, or a record would outgrow ZooKeeper."""
    many = [statement(cluster=f"c{n}") for n in range(MAX_SIGNATURES)]

    assert tuple(many[:2]) == signed(seen_with(many[0]), many[1]).signatures
    assert [] == signing_ops(seen_with(*many), ETL, many[3])
    with pytest.raises(TorrentdistError) as caught:
        signing_ops(seen_with(*many), ETL, statement())
    assert "too_many_signatures" == caught.value.code


@pytest.mark.parametrize(
    "envelope",
    [
        statement(id=BundleId("other")),
        statement(digest=digest_of("other")),
        statement(domain="torrentdist/job/v1"),
        statement(cluster="c" * 2000),
        msgspec.structs.replace(statement(), payload=b"{}"),
        msgspec.structs.replace(statement(), signatures=()),
        msgspec.structs.replace(statement(), signatures=statement().signatures * 17),
    ],
)
def test_what_no_host_would_accept_is_refused_at_once(envelope: Envelope) -> None:
    """A mistake would be noticed only on the hosts, and junk would fill the record."""
    with pytest.raises(TorrentdistError) as caught:
        signing_ops(seen_with(), ETL, envelope)

    assert "bad_signature" == caught.value.code


def test_lists_leave_the_signatures_out() -> None:
    """A list of bundles would grow by their signatures."""
    seen = seen_with(statement())

    assert [1, 0] == [len(view.signatures) for view in (bundle_view(seen, ETL), *bundle_list(seen))]
    assert [bundle_view(seen, ETL).signers] == [view.signers for view in bundle_list(seen)]


def job(**changes: Any) -> NewJob:
    spec = JobSpec(name="etl", command=("true",), dependencies=(BundleId("model"),))
    facts = {
        "cluster": "prod",
        "id": JobId("etl-12345678"),
        "bundle": SignedContent(ETL, digest_of("etl")),
        "dependencies": (SignedContent(BundleId("model"), digest_of("model")),),
        "name": None,
        "workers": None,
        "conf": {},
        "spec": spec,
        **changes,
    }
    return NewJob(JobId("etl-12345678"), ETL, spec, signature=sign(JobStatement(**facts), KEY))


def test_a_signed_job_is_recorded_with_its_signature() -> None:
    """Hosts could not verify the job."""
    new = job()
    (op,) = submit_ops(snapshot([bundle("etl"), bundle("model")]), new, 1.0)
    assert isinstance(op, Create)

    assert new.signature == decode(op.data, JobRecord, path=op.path).signature


@pytest.mark.parametrize(
    "changes",
    [
        {"id": JobId("etl-00000000")},
        {"bundle": SignedContent(ETL, digest_of("other"))},
        {"dependencies": ()},
        {"dependencies": (SignedContent(BundleId("model"), digest_of("other")),)},
    ],
)
def test_a_job_that_no_host_would_start_is_refused_at_its_submission(changes: dict[str, Any]) -> None:
    """A submitter would learn of a mistake only from the workers."""
    with pytest.raises(TorrentdistError) as caught:
        submit_ops(snapshot([bundle("etl"), bundle("model")]), job(**changes), 1.0)

    assert "bad_signature" == caught.value.code


def test_nothing_is_signed_while_a_release_runs_that_would_lose_it() -> None:
    """A leader of the previous release would write the record back without its signatures."""
    record, seen = seen_with(statement()).bundles[ETL].record, seen_with()
    assert seen.cluster is not None
    old = msgspec.structs.replace(seen.cluster, schema=1)
    with pytest.raises(TorrentdistError) as caught:
        signing_ops(replace(seen, cluster=old), ETL, statement())

    assert "not_ready" == caught.value.code
    assert () == decode(spoken("/code-distributor/etl", encode(record), 1), BundleRecord, path="/x").signatures
