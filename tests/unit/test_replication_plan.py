"""The plan of what a master fetches, announces, withdraws and drops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as with_fields
from records_of import bundle, digest_of, snapshot, store_of

from torrentdist.master.replication.replication_plan import (
    SILENT_SECS,
    Abandon,
    DropReplica,
    FetchReplica,
    ForgetName,
    Local,
    PublishReplica,
    WithdrawReplica,
    awaits_bytes,
    is_settled,
    may_go_on,
    plan,
    was_never_complete,
)
from torrentdist.model.ids import BundleId, Digest, MasterId, StoreId
from torrentdist.model.records import SCHEMA, BundleState

ME = MasterId("m1")


def local(*published: str, **changes: Any) -> Local:
    known: dict[str, Any] = {
        "me": ME,
        "store": store_of(ME),
        "published": frozenset(digest_of(name) for name in published),
        "arriving": frozenset[Digest](),
        "fetching": frozenset[Digest](),
    }
    return Local(**{**known, **changes})


def test_what_others_have_is_fetched() -> None:
    """A10: a master that does not fetch what it lacks never catches up."""
    assert [FetchReplica(BundleId("a"), digest_of("a"))] == plan(snapshot([bundle("a", holders=["m2"])]), local(), 0.0)


def test_a_replica_is_announced_only_for_what_is_published() -> None:
    """A12: a record for bytes that are still arriving would count a copy that does not exist."""
    arriving = local(arriving=frozenset({digest_of("a")}), fetching=frozenset({digest_of("a")}))

    assert [] == plan(snapshot([bundle("a")]), arriving, 0.0)
    assert [PublishReplica(BundleId("a"), digest_of("a"))] == plan(snapshot([bundle("a")]), local("a"), 0.0)


def test_another_store_announces_itself_anew() -> None:
    """A27: the old disk's record would stand for bytes that the new disk got only now."""
    replaced = local("a", store=StoreId("new"))

    assert [PublishReplica(BundleId("a"), digest_of("a"))] == plan(
        snapshot([bundle("a", holders=["m1"])]), replaced, 0.0
    )


def test_a_record_without_bytes_is_withdrawn_and_the_bytes_are_fetched() -> None:
    """A27: a master with an empty disk would still count as a holder."""
    expected = [WithdrawReplica(BundleId("a")), FetchReplica(BundleId("a"), digest_of("a"))]

    assert expected == plan(snapshot([bundle("a", holders=["m1", "m2"])]), local(), 0.0)


def test_an_absent_tree_changes_nothing() -> None:
    """A13: a wiped or mistyped chroot would empty every disk."""
    stale = local("a", stale=frozenset({digest_of("b")}))

    assert [] == plan(snapshot([], present=False), stale, 0.0)


def test_a_bundle_without_a_record_stays() -> None:
    """A13: a bundle that ZooKeeper does not know would be deleted, although nobody removed it."""
    assert [] == plan(snapshot([]), local("a"), 0.0)


def test_a_tombstone_drops_and_withdraws() -> None:
    """A16: a removed bundle would come back from a master that was away."""
    recorded = snapshot([bundle("a", state=BundleState.REMOVED, holders=["m1"])])
    withdrawn = snapshot([bundle("a", state=BundleState.REMOVED)])

    assert [WithdrawReplica(BundleId("a"))] == plan(recorded, local("a"), 0.0)
    assert [DropReplica(digest_of("a"))] == plan(withdrawn, local("a"), 0.0)


def test_what_nobody_has_holds_up_nothing() -> None:
    """A master whose disk lost many bundles would try for ever those that nobody has, and never
    repair the others."""
    lost = [bundle(name) for name in "abcdef"]
    seen = snapshot([*lost, bundle("x", holders=["m2"]), bundle("y", holders=["m2"])])
    rested = {digest_of(name): float(10 - number) for number, name in enumerate("abcdefx")}

    assert [FetchReplica(BundleId(name), digest_of(name)) for name in "xyfe"] == plan(
        seen, local(not_before=rested), 20.0
    )


def test_the_same_content_under_a_living_id_stays() -> None:
    """A28: removing one name of a content would take it away from the other name."""
    removed = bundle("old", content="same", state=BundleState.REMOVED)
    living = bundle("new", content="same", holders=["m1"])

    assert [] == plan(snapshot([removed, living]), local("same"), 0.0)


def test_an_abandoned_arrival_is_dropped() -> None:
    """A20: an abandoned upload would keep its reserved room for ever."""
    stale = local(arriving=frozenset({digest_of("a")}), stale=frozenset({digest_of("a")}))

    assert [Abandon(digest_of("a"))] == plan(snapshot([]), stale, 0.0)


def test_an_upload_is_fetched_before_all_else_and_beyond_the_limit() -> None:
    """A26: an upload that a user waits for would queue behind old bundles."""
    known = [bundle(name, holders=["m2"]) for name in ("a", "x")]
    seen = snapshot([*known, bundle("u", state=BundleState.UPLOADING)])
    busy = local(parallel=1, fetching=frozenset({digest_of("x")}))

    assert [FetchReplica(BundleId("u"), digest_of("u"))] == plan(seen, busy, 0.0)


def test_uploads_leave_room_for_what_others_have() -> None:
    """Uploads that send nothing would keep every new bundle from its second replica."""
    idle = [bundle(f"u{number}", state=BundleState.UPLOADING) for number in range(3)]
    gone = bundle("gone", state=BundleState.REMOVED)
    seen = snapshot([*idle, gone, bundle("a", holders=["m2"]), bundle("b", holders=["m2", "m3"])])
    busy = local(parallel=1, fetching=frozenset({digest_of("u0"), digest_of("u1"), digest_of("gone")}))
    expected = [FetchReplica(BundleId("u2"), digest_of("u2")), FetchReplica(BundleId("a"), digest_of("a"))]

    assert expected == plan(seen, busy, 0.0)


def test_what_has_fewest_copies_is_fetched_first() -> None:
    """A29: the bundle nearest to being lost would wait behind safe ones."""
    seen = snapshot([bundle("safe", holders=["m2", "m3"]), bundle("rare", holders=["m2"])])

    assert [FetchReplica(BundleId("rare"), digest_of("rare"))] == plan(seen, local(parallel=1), 0.0)


def test_a_failed_fetch_waits() -> None:
    """A21: a fetch that fails at once would be repeated without a pause."""
    seen = snapshot([bundle("a", holders=["m2"])])
    waiting = local(not_before={digest_of("a"): 5.0})

    assert [] == plan(seen, waiting, 4.0)
    assert [FetchReplica(BundleId("a"), digest_of("a"))] == plan(seen, waiting, 5.0)


def test_a_plug_in_that_needs_the_upload_first_lets_standbys_wait() -> None:
    """A26: the plug-in would look for a bundle that the leader has not handed over yet."""
    seen = snapshot([bundle("u", state=BundleState.UPLOADING)])

    assert [] == plan(seen, local(joins_uploads=False), 0.0)
    assert [FetchReplica(BundleId("u"), digest_of("u"))] == plan(seen, local(joins_uploads=False, leading=True), 0.0)


def test_an_upload_over_http_ends_with_its_uploader_its_leader_or_its_need() -> None:
    """A master would leave the content to an uploader that is gone, and never fetch it."""
    unled = snapshot([bundle("a", state=BundleState.UPLOADING)])
    uploads, held = replace(unled, leader=ME), replace(snapshot([bundle("a", holders=["m2"])]), leader=ME)
    ids = [BundleId("a")]

    assert may_go_on(uploads, ids, ME, SILENT_SECS - 1)
    assert may_go_on(unled, ids, ME, 0.0)
    assert not may_go_on(uploads, ids, ME, SILENT_SECS + 1)
    assert not may_go_on(uploads, ids, MasterId("m2"), 0.0)
    assert not may_go_on(held, ids, ME, 0.0)


def test_bytes_are_taken_only_where_they_are_missing() -> None:
    """A request for the offset would end the repair of a bundle that other masters hold, or nobody
    could bring back one that is lost."""
    entries = [
        bundle("new", state=BundleState.UPLOADING),
        bundle("held", holders=["m2"]),
        bundle("lost", state=BundleState.LOST),
        bundle("gone", state=BundleState.REMOVED),
    ]
    seen = snapshot(entries)
    awaited = {entry.record.id for entry in entries if awaits_bytes(seen, [entry.record.id])}

    assert {"new", "lost"} == awaited
    assert not awaits_bytes(seen, [])


def test_what_is_left_of_a_bundle_that_was_complete_is_kept() -> None:
    """An upload over HTTP would delete the undamaged rest of a last copy."""
    entries = [bundle("new", state=BundleState.UPLOADING), bundle("here"), bundle("gone", state=BundleState.REMOVED)]
    seen = snapshot(entries)

    assert was_never_complete(seen, [BundleId("new"), BundleId("gone")])
    assert not was_never_complete(seen, [BundleId("new"), BundleId("here")])


def test_content_of_a_removed_bundle_is_dropped_wherever_it_is() -> None:
    """A16: a removed bundle that is still arriving would arrive to the end, or a master would drop
    what it never had."""
    seen = snapshot([bundle("a", state=BundleState.REMOVED)])
    a = digest_of("a")

    assert [DropReplica(a)] == plan(seen, local(arriving=frozenset({a})), 0.0)
    assert [DropReplica(a)] == plan(seen, local("a"), 0.0)
    assert [] == plan(seen, local("b"), 0.0)


def test_a_replica_record_of_another_time_is_written_anew() -> None:
    """A replica record in an older schema, or of the content before, would stand for what the store
    has now."""
    entry = bundle("a", holders=["m1"])
    publish, settled = [PublishReplica(BundleId("a"), digest_of("a"))], local("a")
    old = with_fields(entry.replicas[ME], digest=digest_of("before"))
    schema = with_fields(entry.replicas[ME], schema=SCHEMA + 1)

    assert [] == plan(snapshot([entry]), settled, 0.0)
    assert publish == plan(snapshot([entry]), local("a", schema=SCHEMA + 1), 0.0)
    assert [] == plan(snapshot([replace(entry, replicas={ME: schema})]), local("a", schema=SCHEMA + 1), 0.0)
    assert publish == plan(snapshot([replace(entry, replicas={ME: old})]), settled, 0.0)


def test_a_standby_waits_for_an_upload_alone() -> None:
    """A10: a standby whose plug-in does not join uploads would fetch nothing at all."""
    seen = snapshot([bundle("a", holders=["m2"])])
    assert [FetchReplica(BundleId("a"), digest_of("a"))] == plan(seen, local(joins_uploads=False), 0.0)


def test_a_content_under_two_names_is_fetched_once_and_takes_no_room_twice() -> None:
    """If this fails, one content is fetched twice at a time, or keeps others from theirs."""
    entries = [bundle("a", content="same", holders=["m2"]), bundle("b", content="same", holders=["m2"])]
    seen = snapshot([*entries, bundle("c", holders=["m2", "m3"])])
    expected = [FetchReplica(BundleId("a"), digest_of("same")), FetchReplica(BundleId("c"), digest_of("c"))]

    assert expected == plan(seen, local(parallel=2), 0.0)


def named(*names: str) -> Callable[[Digest], set[BundleId]]:
    """Returns what a store says that has these ids for each content."""
    return lambda digest: {BundleId(name) for name in names}


def removed(**changes: Any) -> Any:
    return bundle("a", state=BundleState.REMOVED, **changes)


def test_content_under_an_id_without_a_record_stays() -> None:
    """After a restore from an older backup, the removal of another id with the same content would
    delete what was uploaded since on every master."""
    both = local("a", names=named("a", "lost"))

    assert [ForgetName(BundleId("a"))] == plan(snapshot([removed()]), both, 0.0)
    assert [] == plan(snapshot([removed()]), local("a", names=named("lost")), 0.0)
    assert [DropReplica(digest_of("a"))] == plan(snapshot([removed()]), local("a", names=named("a")), 0.0)


def test_what_has_only_arrived_under_a_forgotten_id_goes() -> None:
    """An upload that nobody finished would keep its room."""
    arriving = local(arriving=frozenset({digest_of("a")}), names=named("a", "lost"))

    assert [DropReplica(digest_of("a"))] == plan(snapshot([removed()]), arriving, 0.0)


def test_the_id_of_a_removed_bundle_is_forgotten_when_its_content_stays() -> None:
    """The content would stay when its last id is removed long after the first one's tombstone."""
    other = bundle("b", content="a", holders=["m1"])
    shared = local("a", names=named("a", "b"))

    assert [ForgetName(BundleId("a"))] == plan(snapshot([removed(), other]), shared, 0.0)
    assert [WithdrawReplica(BundleId("a"))] == plan(snapshot([removed(holders=["m1"]), other]), shared, 0.0)
    assert [ForgetName(BundleId("a"))] == plan(snapshot([removed()]), local(names=named("a")), 0.0)
    assert not is_settled(snapshot([removed()]), local(names=named("a")), BundleId("a"))


def test_an_upload_that_a_master_holds_still_awaits_bytes() -> None:
    """If this fails, an upload is cut off as soon as the first master has it."""
    seen = snapshot([bundle("a", state=BundleState.UPLOADING, holders=["m2"])])
    assert awaits_bytes(seen, [BundleId("a")])


def test_silence_ends_an_upload_at_its_moment() -> None:
    """If this fails, a master waits for an uploader one look longer."""
    seen = snapshot([bundle("a", state=BundleState.UPLOADING)])
    assert not may_go_on(seen, [BundleId("a")], ME, SILENT_SECS)


@pytest.mark.parametrize(
    ("state", "holders", "has", "settled"),
    [
        pytest.param(BundleState.AVAILABLE, ["m1"], local("a"), True, id="here and announced"),
        pytest.param(BundleState.AVAILABLE, [], local("a"), False, id="here and not announced"),
        pytest.param(BundleState.AVAILABLE, ["m1"], local(), False, id="announced and not here"),
        pytest.param(BundleState.REMOVED, [], local(), True, id="removed and forgotten"),
        pytest.param(BundleState.REMOVED, ["m1"], local(), False, id="removed and announced"),
        pytest.param(BundleState.REMOVED, [], local("a"), False, id="removed and here"),
        pytest.param(BundleState.REMOVED, [], local(arriving=frozenset({digest_of("a")})), False, id="still arriving"),
    ],
)
def test_what_needs_no_further_look(state: BundleState, holders: list[str], has: Local, settled: bool) -> None:
    """If this fails, a master looks at every bundle in each round, or leaves one as it is."""
    seen = snapshot([bundle("a", state=state, holders=holders)])

    assert settled is is_settled(seen, has, BundleId("a"))
    assert is_settled(seen, has, BundleId("unknown"))
