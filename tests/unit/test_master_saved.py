"""The records that a master saves on disk: which files it accepts, and when it writes them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.records.snapshot import BundleEntry, ClusterSnapshot
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.http.connection_pool import Http
from torrentdist.master.reads.saved_records import (
    NAME,
    Records,
    SavedRecords,
    SavingPace,
    decode_saved,
    encode_saved,
    source,
)
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, MasterId, StoreId
from torrentdist.model.records import SCHEMA, BundleRecord, BundleState, ClusterRecord, MasterRecord, ReplicaRecord

pytestmark = pytest.mark.anyio

ME, OTHER = MasterId("m1"), MasterId("m2")
DIGEST = Digest("ab" * 32)


def master(id_: MasterId) -> MasterRecord:
    return MasterRecord(
        id=id_, host="h", port=1, url=f"http://{id_}", swarm_port=2, store=StoreId("s"), version="0", started_at=0.0
    )


BUNDLE = BundleRecord(
    id=BundleId("b"), digest=DIGEST, size=1, files=1, state=BundleState.AVAILABLE, min_replicas=1, created_at=1.0
)
REPLICA = ReplicaRecord(master=ME, store=StoreId("s"), digest=DIGEST)
SNAPSHOT = ClusterSnapshot(
    version=7,
    cluster=ClusterRecord(id="c", announce_key="k"),
    masters={ME: master(ME)},
    bundles={BundleId("b"): BundleEntry(BUNDLE, 3, 2.5, {ME: REPLICA})},
    election=(ME,),
    leader=ME,
    epoch=4,
)
SAVED = SavedRecords(zxid=99, saved_at=1.5, snapshot=SNAPSHOT)


def test_what_was_saved_is_read_again() -> None:
    """If this fails, a master that restarts without ZooKeeper forgets what the cluster has."""
    assert decode_saved(encode_saved(SAVED), "f") == SAVED


@given(st.data())
def test_no_damage_is_believed(data: st.DataObject) -> None:
    """If this fails, a flipped bit on disk becomes a bundle that never existed, or an error during
    a request."""
    good = encode_saved(SAVED)
    at = data.draw(st.integers(0, len(good) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "grow"]))
    bad = {
        "flip": good[:at] + bytes([good[at] ^ (1 << data.draw(st.integers(0, 7)))]) + good[at + 1 :],
        "cut": good[:at],
        "grow": good + good[:1] * (at + 1),
    }[kind]

    with pytest.raises(TorrentdistError) as caught:
        decode_saved(bad, "f")
    assert caught.value.code == "corrupt"


@pytest.mark.parametrize("changes", [{"format": 2}, {"format": 0}, {"schema": SCHEMA + 1}, {"schema": 0}])
def test_another_releases_file_is_refused(changes: dict[str, int]) -> None:
    """If this fails, a master reads records of a schema that it does not know."""
    other = msgspec.structs.replace(SAVED, **changes)

    with pytest.raises(TorrentdistError, match="is not one that this release reads"):
        decode_saved(encode_saved(other), "f")


def records(data_dir: Path) -> Records:
    zookeeper = ZooKeeper(ZooKeeperConfig())
    return Records(ME, data_dir, zookeeper, Mirror(zookeeper), Http(), SavingPace(1, 1.0))


async def test_a_refused_file_is_removed_and_nothing_of_it_is_shown(tmp_path: Path) -> None:
    """If this fails, a damaged file is refused again at every start, or half of it is served."""
    file = tmp_path / NAME
    file.write_bytes(encode_saved(SAVED)[:-1])
    mine = records(tmp_path)
    await mine.load()

    assert not file.exists()
    assert mine.snapshot() == ClusterSnapshot()
    assert mine.stale_secs() is None


async def test_a_good_file_is_shown_with_its_age_and_without_a_leader(tmp_path: Path) -> None:
    """If this fails, old records look fresh, or name a leader of which nothing is known."""
    (tmp_path / NAME).write_bytes(encode_saved(SAVED))
    mine = records(tmp_path)
    await mine.load()
    shown, age = mine.snapshot(), mine.stale_secs()

    assert (shown.bundles, shown.cluster, shown.leader, shown.election) == (
        SNAPSHOT.bundles,
        SNAPSHOT.cluster,
        None,
        (),
    )
    assert age is not None
    assert age > 1e6


async def test_a_tree_that_may_have_been_wiped_says_less_than_the_file(tmp_path: Path) -> None:
    """If this fails, users are told for a moment that all their bundles are gone, when ZooKeeper
    comes back empty."""
    (tmp_path / NAME).write_bytes(encode_saved(SAVED))
    zookeeper = ZooKeeper(ZooKeeperConfig())
    mirror = Mirror(zookeeper)
    mine = Records(ME, tmp_path, zookeeper, mirror, Http(), SavingPace(1, 1.0))
    await mine.load()
    mirror.snapshot = SNAPSHOT
    before = mine.from_file()
    mirror.snapshot = ClusterSnapshot()  # not confirmed yet

    assert (False, True) == (before, mine.from_file())
    assert SNAPSHOT.bundles == mine.snapshot().bundles


async def test_a_tree_that_was_wiped_replaces_no_file(tmp_path: Path) -> None:
    """If this fails, a master that is stopped after its ZooKeeper was wiped deletes the records
    from which the cluster could be restored."""
    (tmp_path / NAME).write_bytes(encode_saved(SAVED))
    zookeeper = ZooKeeper(ZooKeeperConfig())
    mirror = Mirror(zookeeper)
    mine = Records(ME, tmp_path, zookeeper, mirror, Http(), SavingPace(1, 1.0))
    await mine.load()
    mirror.snapshot = ClusterSnapshot(version=8)
    await mine.save()

    assert SAVED == decode_saved((tmp_path / NAME).read_bytes(), "f")


def test_older_records_never_replace_newer_ones() -> None:
    """If this fails, a lagging ZooKeeper server turns a master's file back to an older state."""

    def saved(epoch: int, zxid: int, cluster: str = "c") -> SavedRecords:
        record = ClusterRecord(id=cluster, announce_key="k")
        return SavedRecords(
            zxid=zxid, saved_at=0.0, snapshot=msgspec.structs.replace(SNAPSHOT, epoch=epoch, cluster=record)
        )

    assert saved(4, 100).at_least_as_new_as(None)
    assert saved(4, 100).at_least_as_new_as(saved(4, 100))
    assert not saved(4, 99).at_least_as_new_as(saved(4, 100))
    assert saved(5, 3).at_least_as_new_as(saved(4, 100)), "a restored tree counts its transactions anew"
    assert saved(1, 1, "other").at_least_as_new_as(saved(4, 100))


@given(st.integers(0, 5000), st.floats(0, 600), st.floats(0, 1))
def test_it_is_written_after_so_many_changes_or_so_long(changes: int, elapsed: float, jitter: float) -> None:
    """If this fails, a quiet cluster writes all the time, a busy one never, or all masters write at
    the same moment."""
    due = SavingPace(1000, 60.0, jitter).due(changes, elapsed)

    assert not (due and changes == 0)
    assert due or changes == 0 or (changes < 1250 and elapsed < 75)
    assert not due or changes >= 750 or elapsed >= 45


def test_the_leader_leaves_the_writing_to_standbys() -> None:
    """If this fails, the leader spends its time on snapshots, or a cluster of one master saves
    none."""
    both = msgspec.structs.replace(SNAPSHOT, masters={ME: master(ME), OTHER: master(OTHER)})

    assert source(both, ME, leads=False) is None
    assert source(both, ME, leads=True) == ["http://m2"]
    assert source(SNAPSHOT, ME, leads=True) is None
