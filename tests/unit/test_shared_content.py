"""What a host forgets of a removed bundle: content that another bundle has is seeded on."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from records_of import digest_of

from torrentdist.host import fetches as fetches_module
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
            names=lambda digest: names,
            get=lambda digest: here or None,
            may_link=lambda may: None,
            hear_deletions=lambda told: None,
            data_dir=None,
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


@pytest.mark.parametrize(("comes_again", "attempts"), [(False, 3), (True, 1)])
def test_a_plugin_that_fails_to_forget_a_bundle_is_asked_again(
    comes_again: bool, attempts: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """If this fails, a disk error leaves what a plug-in keeps of a removed bundle for ever; or a
    bundle that was uploaded again is forgotten."""
    monkeypatch.setattr(fetches_module, "FORGET_AGAIN_SECS", 0.01)
    asked: list[str] = []

    def forget(bundle: str) -> None:
        asked.append(bundle)
        if len(asked) < 3:
            raise OSError(errno.EIO, "Input/output error")

    async def scenario() -> None:
        store = SimpleNamespace(
            names=lambda digest: set(),
            get=lambda digest: None,
            lookup=lambda bundle: DIGEST if comes_again else None,
            may_link=lambda may: None,
            hear_deletions=lambda told: None,
            data_dir=tmp_path,
        )
        parts: Any = SimpleNamespace(store=store, engine=None, events=None, tell_masters=lambda within: None)
        known: Any = None
        plugin: Any = SimpleNamespace(cleanup=forget)
        recipe_of: Any = None
        fetches = Fetches(parts, SwarmTransfers(parts, known, lambda digest: []), plugin, recipe_of)
        await fetches.clean_up(A, DIGEST)
        while fetches._forgetting:
            await asyncio.wait(fetches._forgetting, timeout=5.0)

    asyncio.run(scenario())
    assert [A] * attempts == asked
