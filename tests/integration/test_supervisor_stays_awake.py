"""A supervisor's event loop goes on whatever it is asked. The job host turns the test red when a
callback takes 50 ms (quick_callbacks.py)."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx
import msgspec
import pytest
from job_host import JobHost, publish_bundle

from torrentdist.model.ids import BundleId

pytestmark = pytest.mark.anyio

FILES = 10_000
READERS = 60


def make_tree(directory: Path) -> Path:
    for folder in range(FILES // 100):
        (directory / f"d{folder}").mkdir(parents=True)
        for number in range(100):
            (directory / f"d{folder}" / f"f{number}").write_bytes(b"%d" % number)
    return directory


@pytest.mark.case("G10")
async def test_many_read_a_bundle_of_many_files(host: JobHost, tmp_path: Path) -> None:
    """If this fails, a few hundred readers make a supervisor's watchdog end it, and its workers
    with it. It takes long: hundreds of readers read it."""
    await host.end(signal.SIGTERM)
    source = await asyncio.to_thread(make_tree, tmp_path / "many")
    await asyncio.to_thread(publish_bundle, host.data, source, BundleId("many"))
    await host.start()
    url = msgspec.json.decode((host.data / "daemon.json").read_bytes())["url"]
    paths = ["/bundles/many"] * READERS + ["/bundles/many/files/d7/f7"] * READERS
    archives = [f"/bundles/many/a.{kind}" for kind in ("tar", "tar.gz", "zip")]
    async with httpx.AsyncClient(base_url=url, timeout=60.0, trust_env=False, limits=httpx.Limits()) as client:
        answers = await asyncio.gather(*map(client.get, paths), *map(client.head, archives * 5))
        async with client.stream("GET", archives[0]) as growing:
            first = await anext(growing.aiter_raw())

    assert {200} == {answer.status_code for answer in answers}
    assert ({FILES}, {"7"}) == (
        {answer.json()["files"] for answer in answers[:READERS]}, {a.text for a in answers[READERS : 2 * READERS]},
    )  # fmt: skip
    assert first
