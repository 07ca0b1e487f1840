"""The list of the cluster's bundles that the doors of a gateway show."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.supervisor.gateway import cluster_bundles
from torrentdist.supervisor.gateway.cluster_bundles import FRESH_SECS, PAGE, ClusterBundles

pytestmark = pytest.mark.anyio


class Bench:
    """Masters with some bundles, and a host with one of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.ids = 100.0, ["b", "d"]
        self.asked: list[tuple[str, int]] = []
        self.fails: BaseException | None = None
        self.repeats = False
        store: Any = SimpleNamespace(bindings=lambda: {BundleId("c"): "digest", BundleId("d"): "digest"})
        self.bundles = ClusterBundles(self.page, store)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    async def page(self, after: str, most: int) -> list[Any]:
        self.asked.append((after, most))
        await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails
        found = [id_ for id_ in sorted(self.ids) if self.repeats or id_ > after]
        return [SimpleNamespace(id=BundleId(id_)) for id_ in found[:most]]


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


async def test_a_list_has_the_clusters_bundles_and_the_hosts_in_their_order(bench: Bench) -> None:
    """If this fails, `aws s3 ls` lacks a bundle that is on this very host."""
    assert ["b", "c", "d"] == await bench.bundles.ids()
    assert [("", PAGE)] == bench.asked


async def test_masters_are_asked_again_after_a_moment(bench: Bench) -> None:
    """If this fails, each list costs the masters a request, or a new bundle never appears."""
    await asyncio.gather(bench.bundles.ids(), bench.bundles.ids())
    bench.ids.append("e")
    bench.now += FRESH_SECS
    same = await bench.bundles.ids()
    bench.now += 0.1

    assert (["b", "c", "d"], ["b", "c", "d", "e"]) == (same, await bench.bundles.ids())
    assert 2 == len(bench.asked)


async def test_what_was_published_here_is_listed_at_once(bench: Bench) -> None:
    """If this fails, the tag of an image is missing right after its push."""
    await bench.bundles.ids()
    bench.ids.append("e")
    bench.bundles.forget()

    assert ["b", "c", "d", "e"] == await bench.bundles.ids()


@pytest.mark.parametrize("failure", [TorrentdistError("unreachable", detail="no master"), TimeoutError()])
async def test_without_a_master_the_last_list_counts(bench: Bench, failure: BaseException) -> None:
    """If this fails, a list fails or is empty while the masters are away, or each waits for them
    anew."""
    await bench.bundles.ids()
    bench.fails, bench.now = failure, bench.now + FRESH_SECS + 1
    lists = [await bench.bundles.ids() for _ in range(2)]

    assert [["b", "c", "d"]] * 2 == lists
    assert 2 == len(bench.asked)


async def test_a_long_list_is_read_page_by_page(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a cluster with many bundles shows the first thousand of them."""
    monkeypatch.setattr(cluster_bundles, "PAGE", 2)
    bench.ids = ["a", "b", "c", "d", "e"]
    found = await bench.bundles.ids()
    bench.ids, bench.asked, bench.now = ["a", "b", "c", "d"], [], bench.now + FRESH_SECS + 1
    even = await bench.bundles.ids()

    assert (["a", "b", "c", "d", "e"], ["a", "b", "c", "d"]) == (found, even)
    assert [("", 2), ("b", 2), ("d", 2)] == bench.asked


async def test_an_answer_that_goes_in_circles_ends(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a master that takes no notice of the page makes each list endless."""
    monkeypatch.setattr(cluster_bundles, "PAGE", 2)
    bench.repeats = True

    assert ["b", "c", "d"] == await bench.bundles.ids()
    assert 2 == len(bench.asked)


async def test_the_number_of_pages_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a master with endless bundles keeps each list waiting."""
    monkeypatch.setattr(cluster_bundles, "PAGE", 1)
    monkeypatch.setattr(cluster_bundles, "MOST_PAGES", 2)
    bench.ids = ["a", "b", "e"]

    assert ["a", "b", "c", "d"] == await bench.bundles.ids()
