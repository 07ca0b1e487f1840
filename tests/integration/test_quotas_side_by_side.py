"""A quota holds for requests that come side by side; with a real ZooKeeper."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path

import msgspec
import pytest
from masters_in_process import BUNDLE, Enter, InProcess, leader_with_bundle, put_bundle

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.cluster import paths
from torrentdist.master.bundles.bundle_operations import BATCH, Uploader
from torrentdist.master.policies.distribution_orders import DistributionOrder
from torrentdist.model.access.token_messages import TokenRecord
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, StoreId, SupervisorId
from torrentdist.model.records import BundleState, SupervisorRecord, encode

pytestmark = pytest.mark.anyio

OTHER = BundleId("other")


async def leader_with_quota(enter: Enter) -> InProcess:
    """Starts a master with two bundles, a host, and a token that may distribute one bundle and
    upload 1500 bytes."""
    master = await leader_with_bundle(enter)
    await put_bundle(master.zk, OTHER)
    host = SupervisorRecord(
        id=SupervisorId("h1"),
        host="127.0.0.1",
        gateway="http://127.0.0.1:1",
        swarm_port=1,
        store=StoreId("store"),
        version="1",
    )
    token = TokenRecord(name="team", role="uploader", hash="", created_at=0.0, max_bytes=1500, max_distributions=1)
    await master.zk.ensure(paths.parent(paths.token("team")))
    await master.zk.create(paths.supervisor(host.id), encode(host))
    await master.zk.create(paths.token("team"), encode(token))
    await master.mirror.wait_for(lambda s: "team" in s.tokens and len(s.supervisors) == 1, 10.0)
    return master


async def ends(*requests: Coroutine[None, None, bytes]) -> list[str]:
    """Returns how each of these requests ended, which begin together."""
    ended = await asyncio.gather(*requests, return_exceptions=True)
    return sorted(end.code if isinstance(end, TorrentdistError) else type(end).__name__ for end in ended)


async def test_distributions_side_by_side_stay_within_the_quota(enter: Enter) -> None:
    """If this fails, a team loads the network with as many distributions as it begins at once."""
    master = await leader_with_quota(enter)
    orders = [DistributionOrder(bundle, owner="team") for bundle in (BUNDLE, OTHER)]
    ended = await ends(*(master.distributions.begin(None, order, lambda _: None) for order in orders))

    assert ["bytes", "quota_exceeded"] == ended
    assert 1 == len(master.mirror.snapshot.distributions)


async def test_uploads_side_by_side_stay_within_the_quota(enter: Enter, tmp_path: Path) -> None:
    """If this fails, a team fills the disks of all others with uploads that it begins at once."""
    master = await leader_with_quota(enter)
    metas = []
    for n in range(2):
        (tmp_path / str(n)).write_bytes(bytes([n]) * 1000)
        metas.append((BundleId(f"new-{n}"), make_metafile(tmp_path / str(n))))
    ended = await ends(
        *(master.operations.open_upload(None, bundle, meta, 1, uploader=Uploader("team")) for bundle, meta in metas)
    )

    assert ["bytes", "quota_exceeded"] == ended


async def test_an_upload_beyond_the_quota_is_refused_before_it_takes_room(enter: Enter, tmp_path: Path) -> None:
    """If this fails, a team that has used its quota up fills the leader's disk with metafiles."""
    master = await leader_with_quota(enter)
    (tmp_path / "large").write_bytes(bytes(2000))

    with pytest.raises(TorrentdistError, match="quota"):
        master.operations.check_may_open(
            master.mirror.snapshot, BundleId("large"), make_metafile(tmp_path / "large"), Uploader("team")
        )


async def test_many_uploads_give_way_in_several_transactions(enter: Enter, tmp_path: Path) -> None:
    """2,000 uploads of one content would give way in a transaction that ZooKeeper refuses, and
    their content could never be published."""
    master = await leader_with_bundle(enter)
    (tmp_path / "file").write_bytes(b"content")
    meta = make_metafile(tmp_path / "file")
    await master.operations.open_upload(None, OTHER, meta, 1, uploader=Uploader("eve", ("other*",)))
    opened = master.mirror.snapshot.bundles[OTHER].record
    names = [BundleId(f"other-{number}") for number in range(BATCH)]
    for name in names:
        await master.zk.create(paths.bundle(name), encode(msgspec.structs.replace(opened, id=name)))
    await master.mirror.wait_for(lambda s: len(s.bundles) == BATCH + 2, 10.0)
    await master.operations.open_upload(None, BundleId("mine"), meta, 1, uploader=Uploader("ann", has_proven=True))
    states = Counter(entry.record.state for entry in master.mirror.snapshot.bundles.values())
    changed = [await master.zk.exists(paths.bundle(name)) for name in (*names, OTHER)]

    assert {BundleState.REMOVED: BATCH + 1, BundleState.UPLOADING: 1, BundleState.AVAILABLE: 1} == states
    assert 2 == len({stat.modified_zxid for stat in changed if stat is not None})
