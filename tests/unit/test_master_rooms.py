"""Rooms of a master, each built alone on an opened host, without ZooKeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from torrentdist.host.http.operation import operations_of
from torrentdist.host.process.room import When
from torrentdist.master.bundles.room import bundles_room
from torrentdist.master.host_answers import HostAnswers
from torrentdist.master.jobs.room import jobs_room
from torrentdist.master.leading.room import leading_room
from torrentdist.master.master_core import MasterCore
from torrentdist.master.places.room import places_room
from torrentdist.master.swarm.room import swarm_room
from torrentdist.model.configuration.config import ApiConfig, Config, MasterConfig
from torrentdist.model.ids import Digest

pytestmark = pytest.mark.anyio


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[MasterCore]:
    config = Config(master=MasterConfig(id="m1", data_dir=str(tmp_path)), api=ApiConfig(port=0))
    core = await MasterCore.open(config, HostAnswers())
    yield core
    await core.host.close()


async def test_the_jobs_room_says_what_it_serves_and_when_its_loop_starts(core: MasterCore) -> None:
    """A master would place workers before it is registered, or answer nothing about jobs."""
    room = jobs_room(core, leading_room(core, swarm_room(core).swarms))

    assert [("jobs", When.REGISTERED)] == [(loop.name, loop.when) for loop in room.loops]
    assert {"POST /v1/jobs", "POST /v1/heartbeat"} < {op.request for op in operations_of(*room.routers)}


async def test_an_upload_that_is_under_way_counts_as_one_that_may_complete(core: MasterCore) -> None:
    """The leader would forget an upload over HTTP whose bytes are still coming."""
    leading = leading_room(core, swarm_room(core).swarms)
    before = len(leading.completing)
    bundles_room(core, leading, swarm_room(core).swarms)
    added = leading.completing[before:]

    assert [False] == [may_complete(Digest("0" * 64)) for may_complete in added]


async def test_without_identities_no_loop_looks_after_places(core: MasterCore) -> None:
    """A leader would try to change ZooKeeper's rights in a cluster that gives hosts none."""
    room = places_room(core, leading_room(core, swarm_room(core).swarms))

    assert () == room.loops
