"""Asks the masters about bundles: what they have of one that is to be uploaded, a bundle's record
and metafile, whether it still exists, and how two of them differ.

Always: an id that stands for other content is a conflict, with a sentence about the difference.
Never: send any of the content.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, NoReturn, TypeVar

from torrentdist.bundle.content_difference import describe_difference, file_changes
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.reuse.chunk_plan import OwnFile, known_parts
from torrentdist.bundle.reuse.recipe import parse_recipe
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.errors import EXIT_UNAVAILABLE, TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.records import BundleState
from torrentdist.model.wire.bundle_messages import BundleDiffView, BundleView, ReuseView

T = TypeVar("T")

REMOVAL_LOOK_SECS: Final = 5.0
"""How often masters are asked about a bundle of which nothing arrives."""


class BundleThere(NamedTuple):
    """What the cluster has under the id of some content."""

    view: BundleView | None
    meta: Metafile
    """The content's metafile in the form that the cluster has: with packs or without."""


async def bundle_and_reuse(
    client: MasterClient, bundle_id: BundleId, meta: Metafile, recipe: bytes | None
) -> tuple[BundleThere, ReuseView | None]:
    """Asks for the bundle and for what of it is known, at the same time. An upload does not depend
    on the second answer, which is None if no master gave it in time."""
    asking = asyncio.create_task(client.reuse(meta, recipe))
    try:
        there = await bundle_there(client, bundle_id, meta)
        with contextlib.suppress(TorrentdistError):
            return there, await asking
        return there, None
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


async def packed_if_read(attempt: Callable[[bool], Awaitable[T]]) -> T:
    """Tries it with packs, and without if a daemon of an earlier release does not read them, or if
    nobody has the metafile that tells in which form a bundle is there."""
    try:
        return await attempt(True)
    except TorrentdistError as error:
        if error.code != "invalid_metafile":
            raise
    return await attempt(False)


async def bundle_there(client: MasterClient, bundle_id: BundleId, meta: Metafile) -> BundleThere:
    """Returns the bundle that the cluster has under this id. Raises `conflict` if its content
    differs. What old records say is no proof that it is still there."""
    try:
        path, params = f"/v1/bundles/{bundle_id}", {"uploading": "true"}
        view = await client.ask_patiently("GET", path, BundleView, params=params)
    except TorrentdistError as error:
        if error.code != "bundle_not_found":
            raise
        return BundleThere(None, meta)
    known = view if client.stale is None else None
    if view.digest == meta.digest:
        return BundleThere(known, meta)
    note = ""
    with contextlib.suppress(TorrentdistError):
        existing = await client.metafile(bundle_id)
        note = await asyncio.to_thread(describe_difference, existing, meta)
        if not note and existing.digest == view.digest:
            return BundleThere(known, existing)
    if not note and meta.packed.files:
        raise TorrentdistError("invalid_metafile", detail=f"no master has the metafile of {bundle_id} to compare")
    raise TorrentdistError("conflict", id=bundle_id, existing=view.digest, note=note)


async def record_and_metafile(client: MasterClient, bundle_id: BundleId) -> tuple[BundleView, Metafile]:
    """Fetches the record and the metafile at the same time. Raises the first error after both tasks
    have ended."""
    record = asyncio.create_task(client.bundle(bundle_id))
    meta = asyncio.create_task(client.metafile(bundle_id))
    try:
        return await record, await meta
    finally:
        for task in (record, meta):
            task.cancel()
        await asyncio.gather(record, meta, return_exceptions=True)


async def bundle_diff(client: MasterClient, a: BundleId, b: BundleId) -> BundleDiffView:
    """Returns what a host that has `a` lacks of `b`."""
    old = await client.metafile(a)
    new = await client.metafile(b)
    recipes = await client.recipe(a), await client.recipe(b)
    found = await asyncio.to_thread(file_changes, old, new)
    shared = await asyncio.to_thread(_shared_parts, old, new, *recipes)
    return BundleDiffView(
        a=a,
        b=b,
        added=found.added,
        removed=found.removed,
        changed=found.changed,
        size=new.size,
        new_bytes=found.new_bytes - shared,
    )


def _shared_parts(old: Metafile, new: Metafile, raw_old: bytes | None, raw_new: bytes | None) -> int:
    """Returns how many bytes of changed files are parts of the older bundle's files, as far as both
    recipes tell."""
    before, after = parse_recipe(raw_old), parse_recipe(raw_new)
    if before is None or after is None:
        return 0
    known = before.by_root
    own = [OwnFile(0, file.path, file.size, file.root) for file in old.files if file.root in known]
    whole = {file.root for file in old.files}
    skip = {file.path for file in new.files if file.root in whole}
    return sum(known_parts(new, after, own, lambda one: known[one.root], skip).values())


async def await_removal(
    client: MasterClient, bundle: BundleId, digest: Digest, received: Callable[[], int]
) -> NoReturn:
    """Raises `bundle_not_found` or `bundle_lost` once the content no longer exists. `received`: how
    many bytes have arrived."""
    before = received()
    while True:
        await asyncio.sleep(REMOVAL_LOOK_SECS)
        before, stood_still = received(), received() == before
        if stood_still:
            await _check_exists(client, bundle, digest)


async def _check_exists(client: MasterClient, bundle: BundleId, digest: Digest) -> None:
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
