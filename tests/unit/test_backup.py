"""A backup's file, and the plan for writing it back into a tree."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torrentdist.cluster import paths
from torrentdist.cluster.election.term import TermRecord, failover_reason, read_term
from torrentdist.cluster.records.tree_restore import (
    MAX_BYTES,
    MAX_OPS,
    RESTORED,
    creations,
    history,
    left_record,
    obstacle,
    occupant,
    passing,
    sorted_nodes,
)
from torrentdist.cluster.session.znode_operations import request_size
from torrentdist.model.backup import Backup, decode_backup, encode_backup
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId
from torrentdist.model.records import ClusterRecord, encode

TREE = {
    "/cluster": b'{"id":"c"}',
    "/epoch": encode(TermRecord(leader=MasterId("m1"), election="x-0000000001")),
    "/failovers": b"",
    "/failovers/f-0000000010": b"second",
    "/failovers/f-0000000002": b"first",
    "/code-distributor": b"",
    "/code-distributor/b": b"bundle",
    "/code-distributor/b/m1": b"replica",
    "/code-distributor/b.2": b"bundle",
    "/code-distributor/b.2/m1": b"replica",
    "/groups": b"",
    "/groups/g": b"group",
    "/groups/g/resources": b"",
    "/groups/g/resources/r": b"",
    "/jobs": b"",
    "/jobs/later": b"\xff\x00 unknown to this release",
}


def backup(tree: dict[str, bytes]) -> Backup:
    return Backup(cluster="c", epoch=12, zxid=99, made_at=1.0, nodes=sorted_nodes(tree))


WHOLE = backup(TREE)
SUCCESSOR = TermRecord(leader=MasterId("m2"), election="c-0000000009")


def test_a_backup_is_read_as_it_was_made() -> None:
    """If this fails, a restored cluster is not the one that was saved."""
    found = decode_backup(encode_backup(WHOLE), "f")

    assert {node.path: node.data for node in found.nodes} == TREE
    assert (found.cluster, found.epoch) == ("c", 12)


@given(st.data())
def test_no_damaged_backup_is_restored(data: st.DataObject) -> None:
    """If this fails, a bit that flipped on the operator's disk becomes a record."""
    good = encode_backup(WHOLE)
    at = data.draw(st.integers(0, len(good) - 1))
    bad = data.draw(st.sampled_from([good[:at], good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :], good + b" "]))

    with pytest.raises(TorrentdistError) as caught:
        decode_backup(bad, "f")
    assert caught.value.code in ("backup_damaged", "not_a_backup")


@pytest.mark.parametrize("changes", [{"schema": 2}, {"format": "something else"}])
def test_a_file_of_another_kind_is_told_from_a_damaged_one(changes: dict[str, object]) -> None:
    """If this fails, the user of an older release is told that a good backup is broken."""
    other = encode_backup(msgspec.structs.replace(WHOLE, **changes))

    with pytest.raises(TorrentdistError) as caught:
        decode_backup(other, "f")
    assert caught.value.code == "not_a_backup"


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"{}", b"[1]", b'{"epoch": 3}', b"\xff\xfe"])
def test_a_file_that_is_no_backup_at_all_is_not_called_damaged(data: bytes) -> None:
    """If this fails, a user who mistypes a name is told that the disk is failing."""
    with pytest.raises(TorrentdistError) as caught:
        decode_backup(data, "f")

    assert ("not_a_backup", 2) == (caught.value.code, caught.value.exit_code)
    assert "ha backup" in caught.value.hint


FOUNDED = encode(ClusterRecord(id="new", announce_key="other"))
OWN = encode(ClusterRecord(id="c", announce_key="k"))


@pytest.mark.parametrize(
    ("there", "holds"),
    [
        ({}, None),
        ({"/cluster": FOUNDED, "/epoch": b"x", "/failovers": b"", "/failovers/f-0000000000": b"x", "/jobs": b""}, None),
        (
            {"/cluster": b"unreadable", "/groups": b"", "/groups/g": b"members are back", "/groups/g/resources": b""},
            None,
        ),
        ({"/cluster": OWN}, "/cluster"),
        ({"/cluster": FOUNDED, "/code-distributor/b": b"bundle"}, "/code-distributor/b"),
        ({"/code-distributor/z": b"uploaded since"}, "/code-distributor/z"),
        ({"/assignments/s1": b"given since"}, "/assignments/s1"),
        ({"/jobs/j": b"submitted since"}, "/jobs/j"),
        ({"/groups/g/resources/r": b""}, "/groups/g/resources/r"),
        ({"/somebody/elses": b""}, "/somebody/elses"),
    ],
)
def test_a_tree_is_empty_that_holds_only_what_daemons_put_there(there: dict[str, bytes], holds: str | None) -> None:
    """If this fails, a restore rolls back a living cluster, or no restore works beside running
    masters."""
    found = occupant(there, WHOLE)

    assert (holds is None) == (found is None)
    assert (holds or "") in (found or "")


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ({}, None),
        ({"/cluster": b"founded since", "/epoch": b"", "/failovers/f-0000000000": b"x", "/jobs": b""}, None),
        ({"/code-distributor/b": b"bundle", "/code-distributor/b/m9": b"a holder since"}, None),
        ({"/groups/g": b"members are back", "/groups/g/resources": b""}, None),
        ({"/code-distributor/b": b"changed"}, "/code-distributor/b"),
        ({"/code-distributor/z": b"uploaded since"}, "/code-distributor/z"),
        ({"/code-distributor/z": b"", "/code-distributor/z/m1": b""}, "/code-distributor/z"),
        ({"/assignments/s1": b"given since"}, "/assignments/s1"),
    ],
)
def test_a_restore_goes_on_where_nobody_else_has_written(there: dict[str, bytes], expected: str | None) -> None:
    """If this fails, a continued restore loses changes that users made meanwhile, or can never be
    completed."""
    assert obstacle(there, WHOLE) == expected


def test_who_is_at_work_right_now_is_no_record() -> None:
    """If this fails, a restored tree has members, plans and claims of processes that are long
    gone."""
    kept = ["/groups", "/groups/g", "/groups/g/resources", "/groups/g/resources/r", "/jobs/j", "/code-distributor/b/m1"]
    gone = ["/groups/g/plan", "/groups/g/epoch", "/groups/g/members/x", "/requests/ab", "/masters", "/election/x"]

    assert [path for path in kept + gone if not passing(path)] == kept


NAMES = st.text("abc-.", min_size=1, max_size=3).map(lambda text: f"x{text}")
TREES = st.dictionaries(NAMES, st.tuples(st.sets(NAMES, max_size=4), st.integers(0, 90_000)), max_size=12)


@given(TREES, st.data())
def test_every_missing_record_is_written_once_parents_first_bundles_whole(
    bundles: dict[str, tuple[set[str], int]], data: st.DataObject
) -> None:
    """If this fails, a restore fails halfway, or a master sees a bundle before its holders and
    fetches it again."""
    tree = {"/code-distributor": b"", "/cluster": b"{}", "/epoch": b""}
    for name, (replicas, size) in bundles.items():
        tree[f"/code-distributor/{name}"] = b"r" * size
        tree |= {f"/code-distributor/{name}/{replica}": b"r" for replica in replicas}
    there = {path for path in tree if path.count("/") < 3 and data.draw(st.booleans())}
    batches = list(creations(backup(tree), there))
    written = [op.path for batch in batches for op in batch]
    seen = set(there)
    for path in written:
        assert path.count("/") == 1 or paths.parent(path) in seen | {"/code-distributor"}
        seen.add(path)

    assert sorted(written) == sorted(tree.keys() - there - {"/cluster", "/epoch"})
    assert all(len(batch) <= MAX_OPS and request_size(batch) <= MAX_BYTES for batch in batches)
    for name in bundles.keys() - {paths.name(path) for path in there}:
        assert sum(any(op.path.startswith(f"/code-distributor/{name}/") for op in batch) for batch in batches) <= 1


def test_a_group_too_large_for_one_transaction_is_written_in_several() -> None:
    """If this fails, one large resource group makes a whole backup useless."""
    tree = {"/groups": b"", "/groups/g": b"", "/groups/g/resources": b""}
    tree |= {f"/groups/g/resources/{n:05}": b"x" * 100 for n in range(3000)}
    batches = list(creations(backup(tree), ()))

    assert [op.path for batch in batches for op in batch] == sorted(tree)
    assert all(len(batch) <= MAX_OPS and request_size(batch) <= MAX_BYTES for batch in batches)


def test_the_history_is_in_its_order_and_the_next_leader_says_why() -> None:
    """If this fails, `ha failovers` shows another history after a restore than before."""
    term = read_term(left_record(WHOLE))

    assert history(WHOLE) == [b"first", b"second"]
    assert term is not None
    assert (term.leader, failover_reason(term, SUCCESSOR, registered=True)) == ("m1", RESTORED)
    assert left_record(backup({})) == b""
