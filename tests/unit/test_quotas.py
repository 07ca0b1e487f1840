"""What an owner may keep and run at once."""

import pytest
from msgspec import structs
from msgspec.structs import replace
from records_of import bundle, snapshot

from torrentdist.cluster.records.snapshot import BundleEntry, ClusterSnapshot, TokenEntry
from torrentdist.master.policies.quotas import check_bytes, check_distributions, check_uploads, has_quota
from torrentdist.model.access.token_messages import TokenRecord
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState
from torrentdist.model.records import BundleState

NEW = BundleId("new")


def owned(name: str, owner: str, size: int, state: BundleState = BundleState.AVAILABLE) -> BundleEntry:
    entry = bundle(name, state=state)
    return replace(entry, record=structs.replace(entry.record, owner=owner, size=size))


def running(name: str, owner: str, state: DistributionState = DistributionState.RUNNING) -> DistributionRecord:
    return DistributionRecord(bundle=BundleId(name), owner=owner, state=state)


def cluster(most_bytes: int = 0, most_distributions: int = 0) -> ClusterSnapshot:
    """Returns records in which ann keeps 30 bytes and runs two distributions."""
    token = TokenRecord(
        name="ann",
        role="uploader",
        hash="",
        created_at=0.0,
        max_bytes=most_bytes,
        max_distributions=most_distributions,
    )
    bundles = [
        owned("one", "ann", 10),
        owned("two", "ann", 20, BundleState.UPLOADING),
        owned("gone", "ann", 400, BundleState.REMOVED),
        owned("other", "bob", 8000),
    ]
    orders = [
        running("one", "ann"),
        running("two", "ann"),
        running("three", "ann", DistributionState.COMPLETE),
        running("other", "bob"),
        running("more", "bob"),
        running("rest", "bob"),
    ]
    return replace(snapshot(bundles, distributions=orders), tokens={"ann": TokenEntry(token, 0)})


def refused(check: object, *arguments: object) -> str:
    with pytest.raises(TorrentdistError) as caught:
        check(*arguments)  # type: ignore[operator]
    return str(caught.value)


def test_only_a_token_with_a_limit_has_a_quota() -> None:
    """If this fails, quotas are not shown, or shown where there are none."""
    assert [False, True, True, True] == [
        has_quota(cluster(*limits), "ann") for limits in ((0, 0), (1, 0), (0, 1), (1, 1))
    ]
    assert has_quota(cluster(1, 1), "bob") is False


def test_an_owner_keeps_as_many_bytes_as_allowed() -> None:
    """If this fails, an owner exceeds the quota, or is refused what it allows."""
    check_bytes(cluster(most_bytes=35), "ann", NEW, 5)
    check_bytes(cluster(), "ann", NEW, 10**12)
    check_bytes(cluster(most_bytes=35), "bob", NEW, 10**12)

    assert "30 B, 'new' has 6 B, and 35 B are allowed" in refused(check_bytes, cluster(most_bytes=35), "ann", NEW, 6)


def test_a_bundle_that_is_uploaded_again_counts_once() -> None:
    """If this fails, an upload that goes on is refused for its own bytes."""
    check_bytes(cluster(most_bytes=30), "ann", BundleId("two"), 20)
    assert "'two' has 21 B" in refused(check_bytes, cluster(most_bytes=30), "ann", BundleId("two"), 21)


def test_an_owner_runs_as_many_distributions_as_allowed() -> None:
    """If this fails, an owner exceeds the quota, or is refused what it allows."""
    check_distributions(cluster(most_distributions=3), "ann", NEW)
    check_distributions(cluster(), "ann", NEW)
    check_distributions(cluster(most_distributions=2), "bob", NEW)
    check_distributions(cluster(most_distributions=2), "ann", BundleId("one"))

    said = refused(check_distributions, cluster(most_distributions=2), "ann", NEW)
    assert "2 distributions are running, and 2 are allowed at once" in said


@pytest.mark.parametrize(("own", "others", "allowed"), [(255, 1_744, True), (256, 0, False), (0, 2_000, False)])
def test_open_uploads_are_limited_by_owner_and_in_all(own: int, others: int, allowed: bool) -> None:
    """If this fails, one uploader stops everybody's uploads."""
    uploads = {BundleId(f"{n}"): "ann" if n < own else f"other-{n}" for n in range(own + others)}
    if allowed:
        check_uploads(uploads, "ann")
    else:
        assert "upload" in refused(check_uploads, uploads, "ann")
