"""Long lists in pages: what a master returns, and how a client joins them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from records_of import bundle, job, snapshot

from torrentdist.client.masters.list_pages import PAGE, all_pages
from torrentdist.master.bundles.bundle_views import bundle_list
from torrentdist.master.jobs.job_views import job_list
from torrentdist.master.reads.paging import WHOLE, Page
from torrentdist.model.records import BundleState

IDS = [f"b{number:04d}" for number in range(2 * PAGE)]


class Master:
    """A master that returns its ids in pages, or all at once if it knows no pages."""

    def __init__(self, ids: list[str], *, knows_pages: bool = True) -> None:
        self.ids = ids
        self.knows_pages = knows_pages
        self.asked = 0

    async def fetch(self, params: Mapping[str, str]) -> list[str]:
        self.asked += 1
        page = Page(params.get("after", ""), int(params["limit"])) if self.knows_pages else WHOLE
        return page.of(self.ids)


@pytest.mark.anyio
@pytest.mark.parametrize("count", [0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE])
@pytest.mark.parametrize("knows_pages", [True, False])
async def test_all_pages_are_the_whole_list(count: int, knows_pages: bool) -> None:
    """G11: a list would lack its end, or a client would ask an older master for ever."""
    master = Master(IDS[:count], knows_pages=knows_pages)

    assert IDS[:count] == await all_pages(master.fetch, str)
    assert master.asked <= count // PAGE + 1


@pytest.mark.anyio
async def test_pages_of_masters_of_two_releases_fit_together() -> None:
    """G11: during an upgrade each page may come from another master."""
    masters = [Master(IDS), Master(IDS, knows_pages=False)]

    async def fetch(params: Mapping[str, str]) -> list[str]:
        return await masters.pop(0).fetch(params)

    assert IDS == await all_pages(fetch, str)


def test_a_page_holds_what_is_listed_after_the_last_one() -> None:
    """G11: tombstones would make pages shorter, and a short page is the last one."""
    removed = bundle("b1", state=BundleState.REMOVED)
    seen = snapshot([bundle("b3"), removed, bundle("b2"), bundle("b0")])

    assert ["b0", "b2"] == [view.id for view in bundle_list(seen, None, Page(limit=2))]
    assert ["b3"] == [view.id for view in bundle_list(seen, None, Page(after="b2", limit=2))]
    assert ["b0", "b2", "b3"] == [view.id for view in bundle_list(seen)]


def test_a_page_of_jobs_is_in_the_order_of_ids() -> None:
    """G11: a page in another order than its `after` would lose jobs."""
    seen = snapshot([bundle("code")], jobs=[job(name, ["code"]) for name in ("j3", "j1", "j2")])

    assert ["j1", "j2"] == [view.id for view in job_list(seen, {}, (), None, Page(limit=2))]
    assert ["j3"] == [view.id for view in job_list(seen, {}, (), None, Page(after="j2", limit=2))]
