"""Checks the state at the end, when everything is whole again: nothing acknowledged is lost,
nothing removed is back, every store is sound, every daemon is well.

Always: every wait has a deadline. What is not true by then is a finding.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import httpx
from chaos.load import Entry, Load, State, picture
from chaos.schedule import DAEMONS, MASTERS, SUPERVISORS
from chaos.world import World

from torrentdist.bundle.content_check import verify_content
from torrentdist.bundle.metafile import Metafile, parse_metafile
from torrentdist.bundle.store.store import Store
from torrentdist.client.bundles.download import DownloadWanted, download
from torrentdist.model.errors import TorrentdistError

WELL_SECS = 45.0
WHOLE_SECS = 60.0
DOWNLOAD_SECS = 30.0
AT_ONCE = 4


async def holds(condition: Callable[[], Awaitable[object]], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.1)
    return True


async def well(world: World) -> list[str]:
    """Checks that every daemon answers that it is ready, and that one master leads."""
    missing: list[str] = []

    async def look() -> bool:
        missing[:] = [name for name in DAEMONS if not await world.answers(name, "/readyz")]
        leading = [name for name in MASTERS if await world.answers(name, "/leaderz")]
        missing.extend([] if len(leading) == 1 else [f"one leader instead of {leading}"])
        return not missing

    return [] if await holds(look, WELL_SECS) else [f"after {WELL_SECS:g} s of peace: not ready {missing}"]


async def listed(world: World) -> dict[str, Any]:
    """Returns the bundles that the cluster lists, by id; empty while there is no leader."""
    with contextlib.suppress(httpx.HTTPError, KeyError):
        response = await world.http.get(world.urls[world.leader] + "/v1/bundles", timeout=5.0)
        if response.status_code == 200:
            return {view["id"]: view for view in response.json()}
    return {}


async def is_whole(world: World, load: Load) -> bool:
    """Whether every master holds everything that was acknowledged, so that one disk may go."""
    views = await listed(world)
    return all(len(views.get(e.id, {}).get("holders", ())) == len(MASTERS) for e in load.in_state(State.ACKED))


async def replicated(world: World, load: Load) -> list[str]:
    if await holds(lambda: is_whole(world, load), WHOLE_SECS):
        return []
    views = await listed(world)
    short = {e.id: views.get(e.id, {}).get("holders") for e in load.in_state(State.ACKED)}
    short = {id_: holders for id_, holders in short.items() if len(holders or ()) < len(MASTERS)}
    return [f"after {WHOLE_SECS:g} s of peace not held by every master: {short}"]


async def at_once(checks: Iterable[Coroutine[Any, Any, list[str]]]) -> list[str]:
    """Returns the findings of all checks, which run a few at a time."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(check: Coroutine[Any, Any, list[str]]) -> list[str]:
        async with room:
            return await check

    return [finding for found in await asyncio.gather(*map(one, checks)) for finding in found]


async def ledger_kept(world: World, load: Load) -> list[str]:
    """Checks that everything acknowledged can be downloaded unchanged, that removed bundles are
    gone, and that all others are complete or absent."""
    views = await listed(world)
    findings = [f"{entry.id} was removed and is listed" for entry in load.in_state(State.REMOVED) if entry.id in views]
    wanted = [
        entry
        for entry in load.in_state(State.ACKED, State.REMOVING, State.UNSURE)
        if entry.state is State.ACKED or views.get(entry.id, {}).get("state") == "available"
    ]
    return findings + await at_once(_download(load, entry, world.dir / "final") for entry in wanted)


async def _download(load: Load, entry: Entry, directory: Path) -> list[str]:
    dest = directory / entry.id
    try:
        async with load.client() as client:
            await download(client, load.config, entry.id, dest, DownloadWanted(timeout=DOWNLOAD_SECS))
        if picture(dest) != picture(entry.source):
            return [f"LOST: {entry.id} ({entry.state}) has other content now"]
    except TorrentdistError as error:
        return [f"LOST: {entry.id} ({entry.state}) cannot be downloaded: {error.message}"]
    finally:
        shutil.rmtree(dest, ignore_errors=True)
    return []


async def hosts_sound(world: World, load: Load) -> list[str]:
    """Checks that every supervisor has what it was told to keep, and that every byte of it is
    right."""
    pairs = [(name, entry) for name in SUPERVISORS for entry in load.in_state(State.ACKED) if name in entry.hosts]
    return await at_once(_host_sound(world, name, entry) for name, entry in pairs)


async def _host_sound(world: World, name: str, entry: Entry) -> list[str]:
    url = f"{world.urls[name]}/v1/host/bundles/{entry.id}"

    async def sound() -> bool:
        with contextlib.suppress(httpx.HTTPError):
            if (await world.http.get(url)).json().get("state") != "done":
                return False
            verified = await world.http.post(url + "/verify", timeout=10.0)
            return verified.status_code == 200 and not verified.json()["damaged"]
        return False

    if await holds(sound, WHOLE_SECS):
        return []
    return [f"{name} does not hold {entry.id} whole, {WHOLE_SECS:g} s after it could"]


async def repaired(world: World) -> list[str]:
    """Checks that the daemons found and repaired all damage themselves."""
    bad: list[str] = []

    async def look() -> bool:
        bad[:] = await asyncio.to_thread(lambda: [d for name in DAEMONS for d in damaged(world.store(name))])
        return not bad

    return [] if await holds(look, WHOLE_SECS) else [f"still damaged after {WHOLE_SECS:g} s: {bad}"]


def damaged(store: Path) -> list[str]:
    """Returns published bundles with a wrong byte, read from the disk of a daemon that may be
    running."""
    found = []
    for link in sorted(store.glob("bundles/*")):
        try:
            meta: Metafile = parse_metafile((link / "metafile").read_bytes())
            wrong = [str(damage) for damage in verify_content(meta, link / "content")]
        except (OSError, TorrentdistError) as exc:
            wrong = [str(exc)] if link.exists() else []
        found += [f"{store.name}: {link.name[:12]}: {damage}" for damage in wrong]
    return found


def stores_sound(world: World) -> list[str]:
    """Checks, after all daemons have stopped, that each store opens and every published byte is
    right."""
    findings = []
    for name in DAEMONS:
        store = Store.open(world.store(name))
        try:
            for digest in store.published():
                findings += [f"{name}: published {digest[:12]} is damaged: {d}" for d in store.verify(digest)]
        finally:
            store.close()
    return findings
