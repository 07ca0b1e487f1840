"""A supervisor and a driver in YARN: what is asked of the ResourceManager, and how the run ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from scripted_http import ScriptedHttp

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, JobId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.supervisor.jobs.local_state import JobFacts, RunRecord
from torrentdist.supervisor.process.guardian_processes import GuardianStatus
from torrentdist.supervisor.process.launching import new_run
from torrentdist.supervisor.process.running import Handle
from torrentdist.supervisor.worker.worker_types import Measure
from torrentdist.supervisor.yarn import application_plan, cluster_drivers
from torrentdist.supervisor.yarn.cluster_drivers import ClusterDrivers
from torrentdist.supervisor.yarn.yarn_place import YarnPlace

KEY = JobId("daily-1"), 0
FACTS = JobFacts(incarnation="1", bundle=BundleId("b-1"), workers=1, spec=JobSpec(name="daily", command=("app.py",)))
PLACE = YarnPlace(resource_managers=("http://rm:8088",), tag="torrentdist:daily-1-0", user="etl")
SUBMITTED = GuardianStatus("run-1", "gone", 1, 1, exit_code=0)


class ResourceManager:
    """Applications by their id. An order to kill one is carried out at once."""

    def __init__(self) -> None:
        self.listed: dict[str, dict[str, Any]] = {}
        self.kills: list[str] = []
        self.is_down = False

    def run(self, number: int, state: str = "RUNNING", final: str = "UNDEFINED") -> None:
        id_ = f"application_1_{number}"
        tags = f"{PLACE.tag},{PLACE.tag}:{number}"
        url = f"http://rm:8088/proxy/{id_}/"
        said = {"id": id_, "state": state, "finalStatus": final, "applicationTags": tags, "trackingUrl": url}
        self.listed[id_] = said

    def answer(self, request: httpx.Request) -> httpx.Response:
        if self.is_down:
            raise httpx.ConnectError("refused")
        if request.method == "PUT":
            self.kills.append(request.url.path.split("/")[-2])
            self.listed[self.kills[-1]]["state"] = "KILLED"
            return httpx.Response(202, json={})
        tag, states = request.url.params["applicationTags"], request.url.params.get("states", "")
        found = [
            each
            for each in self.listed.values()
            if tag in each["applicationTags"].split(",") and (not states or each["state"] in states.split(","))
        ]
        return httpx.Response(200, json={"apps": {"app": found}})


@pytest.fixture
def yarn(monkeypatch: pytest.MonkeyPatch) -> ResourceManager:
    manager = ResourceManager()
    monkeypatch.setattr(cluster_drivers, "_http", lambda: ScriptedHttp(manager.answer))
    monkeypatch.setattr(cluster_drivers, "LOOK_SECS", 0.01)
    monkeypatch.setattr(application_plan, "SETTLE_SECS", 0.05)
    return manager


def run(number: int) -> RunRecord:
    return msgspec.structs.replace(new_run(FACTS, session=1), fencing=number, yarn=PLACE)


async def until(condition: Callable[[], bool], changed: asyncio.Event) -> None:
    while not condition():
        changed.clear()
        await changed.wait()


@pytest.mark.anyio
async def test_a_run_is_held_back_until_its_predecessor_has_ended(yarn: ResourceManager) -> None:
    """If this fails, the driver of a lost host runs beside its successor, or is taken for it."""
    yarn.run(6)
    drivers = ClusterDrivers(lambda key: None, lambda: None)
    await drivers.hold_back(KEY, run(7))
    yarn.run(8)
    with pytest.raises(TorrentdistError, match="application_1_8 belongs to a later run"):
        await drivers.hold_back(KEY, run(7))

    assert ["application_1_6"] == yarn.kills


@pytest.mark.anyio
async def test_a_driver_is_followed_to_its_end(yarn: ResourceManager) -> None:
    """If this fails, `job show` lacks the application, or its failure counts as success because its
    submission succeeded."""
    handle, changed = Handle(run(7), Path("/none")), asyncio.Event()
    drivers = ClusterDrivers(lambda key: handle, changed.set)
    yarn.run(7)
    ending = asyncio.create_task(drivers.outlived(KEY, handle.run, SUBMITTED))
    async with asyncio.timeout(10):
        await until(lambda: drivers.of(KEY).id == "application_1_7", changed)
        yarn.is_down = True
        await until(lambda: "YARN cannot be asked" in drivers.trouble(KEY), changed)
        assert not ending.done()
        yarn.is_down = False
        yarn.run(7, "FINISHED", "FAILED")
        status = await ending

    assert status is not None
    assert (1, "", "application_1_7 ended as FAILED") == (status.exit_code, status.reason, status.detail)
    assert "" == drivers.trouble(KEY)


@pytest.mark.anyio
async def test_an_ordered_end_kills_the_driver_and_is_no_failure(yarn: ResourceManager) -> None:
    """If this fails, a killed job's driver runs on in YARN, or a deactivated job uses up its
    restarts."""
    handle = Handle(run(7), Path("/none"), measure=Measure.STOP)
    yarn.run(7)
    status = await ClusterDrivers(lambda key: handle, lambda: None).outlived(KEY, handle.run, None)

    assert ["application_1_7"] == yarn.kills
    assert status is not None
    assert ("stop", "") == (status.reason, status.detail)


@pytest.mark.anyio
async def test_a_failed_submission_keeps_its_own_reason(yarn: ResourceManager) -> None:
    """If this fails, a job whose submission failed is told of an application that never was."""
    handle, failed = Handle(run(7), Path("/none")), msgspec.structs.replace(SUBMITTED, exit_code=1)

    assert failed == await ClusterDrivers(lambda key: handle, lambda: None).outlived(KEY, handle.run, failed)
