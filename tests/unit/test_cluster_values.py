"""Paths, sizes, ACLs and snapshots as values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torrentdist.cluster import paths
from torrentdist.cluster.election.term import TermRecord
from torrentdist.cluster.records.snapshot import ClusterSnapshot, ReadTree, updated
from torrentdist.cluster.session import acl_table
from torrentdist.cluster.session.znode_operations import MAX_REQUEST_BYTES, Create, Delete, Set, Stat, check_size
from torrentdist.model.access.zookeeper_identity import Credentials
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, MasterId, SupervisorId
from torrentdist.model.records import AssignmentRecord, ClusterRecord, encode


def stat(version: int = 0, owner: int = 0) -> Stat:
    return Stat(version=version, ephemeral_owner=owner, mtime=12.5, created_zxid=1, modified_zxid=1)


@pytest.mark.parametrize("bad", ["", ".", "..", "a/b", "../x", "a b", "ä", "x" * 129, "-a", "a\0"])
def test_no_unchecked_id_becomes_a_path(bad: str) -> None:
    """If this fails, a name from outside reaches another znode."""
    makers: list[Callable[[], str]] = [
        lambda: paths.bundle(BundleId(bad)),
        lambda: paths.master(MasterId(bad)),
        lambda: paths.supervisor(SupervisorId(bad)),
        lambda: paths.assignment(SupervisorId(bad)),
        lambda: paths.replica(BundleId("b"), MasterId(bad)),
    ]
    for make in makers:
        with pytest.raises(TorrentdistError) as caught:
            make()
        assert caught.value.code == "invalid_id"

    assert not paths.is_name(bad)


@pytest.mark.case("A14")
def test_ids_that_look_alike_have_different_paths() -> None:
    """If this fails, h1 is confused with h10, or an id with dashes with a sequence number."""
    ids = ["h1", "h10", "h1-0000000001", "h-1", "h.1"]

    assert len({paths.master(MasterId(id_)) for id_ in ids}) == len(ids)


@pytest.mark.parametrize(
    ("name", "expected"), [("u-0000000012", 12), ("u-000000001x", None), ("0000000012", None), ("", None), ("u", None)]
)
def test_sequence_numbers_are_read_from_the_end(name: str, expected: int | None) -> None:
    """If this fails, the order of the election is wrong."""
    assert paths.sequence_of(name) == expected


def test_sizes_are_bounded_over_all_operations() -> None:
    """If this fails, many small writes make one that ZooKeeper drops."""
    half = b"x" * (MAX_REQUEST_BYTES // 2)
    check_size([Set("/a", half), Delete("/b")])
    with pytest.raises(TorrentdistError) as caught:
        check_size([Set("/a", half), Create("/b", half)])

    assert caught.value.code == "too_large"
    with pytest.raises(TorrentdistError):
        check_size([Delete(f"/{n}") for n in range(10_000)])


def test_the_digest_of_a_user_is_the_one_zookeeper_computes() -> None:
    """If this fails, we lock ourselves out: the value is that of ZooKeeper's own documentation."""
    made = acl_table.digest_acl(Credentials("super", "admin"))

    assert made == acl_table.Acl("digest", "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=")


def test_flaws_of_an_acl_are_named() -> None:
    """If this fails, a znode that others can write counts as ours."""
    own, more = acl_table.digest_acl(Credentials("td", "pw")), acl_table.Acl("digest", "r:x", 1)
    less = acl_table.Acl(own.scheme, own.identity, 1)

    assert acl_table.flaw([own], [own]) is None
    assert acl_table.flaw([more, own], [own, more]) is None
    assert acl_table.flaw([own, acl_table.OPEN], [own]) == "it grants world:anyone"
    assert acl_table.flaw([acl_table.Acl("digest", "td:other")], [own]) == "it grants digest:td"
    assert acl_table.flaw([less], [own]) == acl_table.flaw([own], [own, more]) == "it grants too little"
    assert acl_table.flaw([own, acl_table.Acl("digest", "r:x")], [own, more]) == "it grants too much to r"


def test_a_snapshot_changes_only_with_what_it_shows() -> None:
    """If this fails, waiters wake for nothing, or a change is not seen."""
    complaints: list[str] = []
    tree = ReadTree()
    tree.nodes[paths.CLUSTER] = (encode(ClusterRecord(id="c", announce_key="k")), stat())
    first = updated(ClusterSnapshot(), tree, [paths.CLUSTER], lambda path, _: complaints.append(path))
    same = updated(first, tree, [paths.CLUSTER, paths.BUNDLES], lambda path, _: complaints.append(path))
    tree.drop(paths.CLUSTER)
    gone = updated(same, tree, [paths.CLUSTER], lambda path, _: complaints.append(path))

    assert (first.version, first.present) == (1, True)
    assert same is first
    assert (gone.version, gone.present) == (2, False)
    assert complaints == []


def test_the_leader_is_who_raised_the_epoch_and_still_queues() -> None:
    """If this fails, the first in the queue counts as leader before it is ready."""
    tree = ReadTree()
    tree.children[paths.ELECTION] = frozenset({"a-0000000001", "b-0000000002", "junk"})
    tree.nodes[paths.election_node("a-0000000001")] = (b"m1", stat())
    tree.nodes[paths.election_node("b-0000000002")] = (b"m2", stat())
    tree.nodes[paths.EPOCH] = (b"", stat())
    elected = updated(ClusterSnapshot(), tree, [paths.ELECTION, paths.EPOCH], lambda path, exc: None)
    tree.nodes[paths.EPOCH] = (encode(TermRecord(leader=MasterId("m1"), election="a-0000000001")), stat(version=4))
    leading = updated(elected, tree, [paths.EPOCH], lambda path, exc: None)

    assert (elected.election, elected.leader, elected.epoch) == (("m1", "m2"), None, 0)
    assert (leading.leader, leading.epoch, leading.leader_since) == ("m1", 4, 12.5)


def test_assignments_carry_the_version_to_write_with() -> None:
    """If this fails, the leader overwrites an assignment that it has not seen."""
    tree = ReadTree()
    path = paths.assignment(SupervisorId("s"))
    tree.nodes[path] = (encode(AssignmentRecord(generation=2)), stat(version=9))
    snapshot = updated(ClusterSnapshot(), tree, [path], lambda path, exc: None)

    assert snapshot.assignments[SupervisorId("s")].version == 9
