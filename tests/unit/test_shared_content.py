"""Content that two bundles have: it is seeded on when one of them is removed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from records_of import digest_of

from torrentdist.host.fetches import Fetches
from torrentdist.host.swarm_transfers import SwarmTransfers
from torrentdist.model.ids import BundleId, Digest

A, B = BundleId("a"), BundleId("b")
DIGEST = digest_of("a")


@pytest.mark.parametrize(
    ("names", "here", "left"),
    [
        pytest.param({A}, True, [DIGEST], id="its only bundle"),
        pytest.param({A, B}, True, [], id="another bundle has it"),
        pytest.param({B}, True, [], id="the id is gone already"),
        pytest.param({A, B}, False, [DIGEST], id="the content is gone"),
    ],
)
def test_a_plugin_leaves_the_swarm_of_what_no_other_bundle_has(
    names: set[BundleId], here: bool, left: list[Digest]
) -> None:
    """If this fails, removing one of two bundles ends what others fetch of the second one, or a
    host seeds for ever what was removed."""
    removed: list[Digest] = []

    async def remove(digest: Digest) -> None:
        removed.append(digest)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        store = SimpleNamespace(
            names=lambda digest: names, get=lambda digest: here or None, may_link=lambda may: None, data_dir=None
        )
        engine = SimpleNamespace(remove=remove)
        parts: Any = SimpleNamespace(store=store, engine=engine, events=None, tell_masters=lambda within: None)
        known: Any = None
        transfers = SwarmTransfers(parts, known, lambda digest: [])

        def forget(bundle: str) -> None:
            asyncio.run_coroutine_threadsafe(transfers.stop_seeding(DIGEST), loop).result(5.0)

        plugin: Any = SimpleNamespace(cleanup=forget)
        recipe_of: Any = None
        await Fetches(parts, transfers, plugin, recipe_of).clean_up(A, DIGEST)
        assert left == removed
        await transfers.stop_seeding(DIGEST)
        assert [*left, DIGEST] == removed

    asyncio.run(scenario())
