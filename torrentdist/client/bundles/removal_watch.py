"""Notices that a bundle is gone while it is downloaded, so that nobody can give the rest.

Always: masters are asked only while nothing arrives.
Never: end a download because masters don't answer; its peers may come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NoReturn

from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.errors import EXIT_UNAVAILABLE, TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.records import BundleState

LOOK_SECS: Final = 5.0


async def await_removal(
    client: MasterClient, bundle: BundleId, digest: Digest, received: Callable[[], int]
) -> NoReturn:
    """Raises `bundle_not_found` or `bundle_lost` once the content no longer exists. `received`: how
    many bytes have arrived."""
    before = received()
    while True:
        await asyncio.sleep(LOOK_SECS)
        before, stood_still = received(), received() == before
        if stood_still:
            await _check(client, bundle, digest)


async def _check(client: MasterClient, bundle: BundleId, digest: Digest) -> None:
    try:
        view = await client.bundle(bundle)
    except TorrentdistError as error:
        if error.exit_code == EXIT_UNAVAILABLE:
            return
        raise
    if view.digest != digest:  # other content has the id now
        raise TorrentdistError("bundle_not_found", id=bundle)
    if view.state is BundleState.LOST:
        raise TorrentdistError("bundle_lost", id=bundle)
