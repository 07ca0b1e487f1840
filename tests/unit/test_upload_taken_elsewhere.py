"""The end of an upload whose bytes another master has taken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from records_of import bundle, digest_of, snapshot

from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.master.bundles.intake import Intake
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.records import BundleState
from torrentdist.security.authorization import LOCAL

pytestmark = pytest.mark.anyio


async def test_an_upload_that_a_former_leader_took_is_finished_by_the_next() -> None:
    """If this fails, who uploads while the leader changes is told that there is no such upload,
    although a master has all of its bytes."""

    async def nothing(_: object) -> None:
        return None

    async def finish_upload(_: object, finished: BundleId) -> bytes:
        return finished.encode()

    def unheld(_: Digest) -> None:
        return None

    mirror = Mirror(ZooKeeper(ZooKeeperConfig()))
    mirror.snapshot = snapshot([bundle("etl", state=BundleState.UPLOADING, holders=["m1"])], masters=["m1", "m2"])
    runtime: Any = SimpleNamespace(store=SimpleNamespace(get=unheld, metafile=nothing))
    operations: Any = SimpleNamespace(finish_upload=finish_upload)
    changes: Any = SimpleNamespace(recall=nothing)
    unused: Any = None
    intake = Intake(runtime, mirror, operations, changes, unused, unused)

    assert b"etl" == await intake.finish(None, digest_of("etl"), LOCAL)
