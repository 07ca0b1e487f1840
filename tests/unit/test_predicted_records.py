"""What an answer shows of a change before it is written."""

from __future__ import annotations

from records_of import bundle, snapshot

from torrentdist.cluster import paths
from torrentdist.cluster.session.znode_operations import Check, Create, Delete
from torrentdist.master.changes.predicted_records import predicted
from torrentdist.model.ids import BundleId
from torrentdist.model.policies.retention_record import RetentionRecord
from torrentdist.model.records import encode


def test_a_deleted_bundle_is_shown_and_a_deleted_rule_is_not() -> None:
    """The answer to `bundle rm` would name nothing, or that to `bundle retention` the old rule."""
    rule, path = RetentionRecord(pattern="etl-*", keep=1), paths.bundle(BundleId("etl"))
    seen = snapshot([bundle("etl")], retention=[rule])

    assert seen == predicted(seen, [Delete(path, 0), Check(path, 0), Create("/elsewhere/x", b"")])
    assert {} == predicted(seen, [Delete(paths.retention(rule.pattern), 0)]).retention


def test_a_new_record_is_shown_as_it_will_be_read() -> None:
    """The answer to an upload would show the time of another write."""
    new = bundle("etl")
    after = predicted(snapshot(), [Create(paths.bundle(BundleId("etl")), encode(new.record))])

    assert {BundleId("etl"): new} == after.bundles
