"""When the plug-in of a host is told to forget what was removed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from records_of import digest_of

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.supervisor.bundles.forgetting import Forgetting

pytestmark = pytest.mark.anyio

KNOWN, GONE = BundleId("a"), BundleId("b")


async def test_what_is_removed_while_masters_are_asked_is_forgotten_at_once(tmp_path: Path) -> None:
    """If this fails, the plug-in keeps a removed bundle for ten seconds more whenever the host asks
    about another one at that moment."""
    forgotten: list[BundleId] = []
    answer, done = asyncio.Event(), asyncio.Event()

    async def metafile(bundle: BundleId) -> Any:
        if bundle == GONE:
            raise TorrentdistError("bundle_not_found", id=bundle)
        await answer.wait()
        return SimpleNamespace(digest=digest_of(KNOWN))

    async def clean_up(bundle: BundleId, digest: Digest) -> None:
        forgotten.append(bundle)
        done.set()

    store = SimpleNamespace(
        data_dir=tmp_path, get=lambda digest: None, names=lambda digest: set(), lookup=lambda bundle: None
    )
    runtime = SimpleNamespace(store=store, fetches=SimpleNamespace(clean_up=clean_up))
    host: Any = SimpleNamespace(runtime=runtime, links=SimpleNamespace(metafile=metafile))
    signatures: Any = SimpleNamespace(forget=lambda bundles: None)
    forgetting = Forgetting(host, signatures)

    forgetting.note(KNOWN, digest_of(KNOWN))
    forgetting.begin()
    await asyncio.sleep(0)
    forgetting.note(GONE, digest_of(GONE))
    forgetting.begin()
    answer.set()
    async with asyncio.timeout(5.0):
        await done.wait()
    await forgetting.close()

    assert [GONE] == forgotten
