"""The rooms of a supervisor build themselves, from the parts of one host and from each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from torrentdist.host.http.operation import operations_of
from torrentdist.host.process.room import Room
from torrentdist.model.configuration.config import Config, SupervisorConfig
from torrentdist.model.ids import SupervisorId
from torrentdist.supervisor.bundles.room import bundle_room
from torrentdist.supervisor.daemon import Supervisor
from torrentdist.supervisor.gateway.room import DOORS, gateway_room
from torrentdist.supervisor.jobs.local_state import read_left
from torrentdist.supervisor.jobs.room import job_room
from torrentdist.supervisor.place.room import place_room
from torrentdist.supervisor.place.znode_watch import ZnodeWatch

pytestmark = pytest.mark.anyio


def paths_of(room: Room) -> set[str]:
    return {operation.path for operation in operations_of(*room.routers)}


def loops_of(room: Room) -> set[str]:
    return {loop.name for loop in room.loops}


async def test_each_room_is_built_from_a_host_and_other_rooms(tmp_path: Path) -> None:
    """A capability of a supervisor could be tried only in a whole daemon, and a new one would
    change the daemon."""
    settings = SupervisorConfig(id="s1", data_dir=str(tmp_path), ids_dir="", gateway_port=0)
    host = await Supervisor(Config(supervisor=settings)).open_host()
    watch = ZnodeWatch(host.zookeeper, SupervisorId("s1"))
    bundles = bundle_room(host)
    jobs = job_room(host, watch, bundles, read_left(tmp_path))
    gateway = gateway_room(host, watch, bundles.keeper)
    place = place_room(host, watch, bundles.keeper, jobs.workers.assigning, 0.0)
    doors = [door(host, gateway.reader) for door in DOORS]
    await host.close()

    assert "/bundles/{id}" in paths_of(bundles)
    assert "/v1/host/workers" in paths_of(jobs)
    assert "/bundles/{id}/{name}" in paths_of(gateway)
    assert all(paths_of(door) <= paths_of(gateway) for door in doors)
    assert {"keeper", "high mark"} == loops_of(bundles)
    assert {"workers", "reporting", "barriers"} <= loops_of(jobs)
    assert {"audit", "pushes"} == loops_of(gateway)
    assert {"zookeeper"} == loops_of(place)
