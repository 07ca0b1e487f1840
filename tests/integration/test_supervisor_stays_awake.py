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
    """Makes the folders of a hundred versions in a Maven repository, with sdists in them."""
    for version in range(FILES // 100):
        folder = directory / "org" / "lib" / f"1.{version}"
        folder.mkdir(parents=True)
        for number in range(100):
            (folder / f"lib-1.{version}.{number}.tar.gz").write_bytes(b"%d" % number)
    return directory


async def read_by_many(http: httpx.AsyncClient) -> None:
    file = "/bundles/many/files/org/lib/1.7/lib-1.7.7.tar.gz"
    paths = ["/bundles/many"] * READERS + [file] * READERS
    archives = [f"/bundles/many/a.{kind}" for kind in ("tar", "tar.gz", "zip")]
    answers = await asyncio.gather(*map(http.get, paths), *map(http.head, archives * 5))
    async with http.stream("GET", archives[0]) as growing:
        first = await anext(growing.aiter_raw())

    assert {200} == {answer.status_code for answer in answers}
    assert ({FILES}, {"7"}) == (
        {answer.json()["files"] for answer in answers[:READERS]}, {a.text for a in answers[READERS : 2 * READERS]},
    )  # fmt: skip
    assert first


async def read_as_repository(http: httpx.AsyncClient) -> None:
    """No version of the Maven repository has a .jar, so all names are looked at."""
    page = await http.get("/simple/many/lib/", headers={"accept": "application/vnd.pypi.simple.v1+json"})
    again = await http.get("/simple/many/lib/", headers={"accept": "application/vnd.pypi.simple.v1+json"})
    versions = await http.get("/maven/many/org/lib/maven-metadata.xml")
    shown = await http.get("/hub/api/models/many")

    assert [200, 200, 404, 200] == [answer.status_code for answer in (page, again, versions, shown)]
    assert [FILES, FILES] == [len(page.json()["files"]), len(shown.json()["siblings"])]
    assert page.json() == again.json()


@pytest.mark.case("G10")
async def test_a_bundle_of_many_files_is_read(host: JobHost, tmp_path: Path) -> None:
    """If this fails, a few hundred readers, or one page about a bundle of many files, make a
    supervisor's watchdog end it, and its workers with it. It takes long: hundreds of readers read
    it."""
    await host.end(signal.SIGTERM)
    source = await asyncio.to_thread(make_tree, tmp_path / "many")
    await asyncio.to_thread(publish_bundle, host.data, source, BundleId("many"))
    await host.start()
    url = msgspec.json.decode((host.data / "daemon.json").read_bytes())["url"]
    async with httpx.AsyncClient(base_url=url, timeout=60.0, trust_env=False, limits=httpx.Limits()) as http:
        await read_by_many(http)
        await read_as_repository(http)
