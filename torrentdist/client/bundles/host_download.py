"""Downloads through this host's supervisor, which fetches the bundle, keeps it and goes on seeding.
DEST is a copy.

Always: the supervisor's content is copied only if the metafile next to it belongs to the bundle.
Never: give the supervisor the cluster's token, because any process may listen on its port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from torrentdist.bundle.metafile import Metafile, parse_metafile
from torrentdist.client.bundles.transfer_progress import TransferProgress, of_transfer
from torrentdist.http.api_calls import Broken, Request, ask, send
from torrentdist.http.connection_pool import Http
from torrentdist.model.access.envelope import Envelope
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.fleet_messages import HostBundleView, HostState
from torrentdist.model.wire.transfer_messages import Sources
from torrentdist.model.wording import cause_text

ALIVE_SECS = 0.5
CALL_SECS = 2.0
POLL_SECS = 1.0
"""The progress shown is never older."""


class NotHere(Exception):
    """The supervisor cannot be used for this download, so this process has to be a peer itself."""


class Held:
    """A bundle that the supervisor has published and this process can read."""

    def __init__(self, meta: Metafile, content: Path, sources: Sources, signatures: list[Envelope]) -> None:
        self.signatures = signatures
        self.meta = meta
        self.content = content
        self.sources = sources


async def fetch_through_supervisor(
    url: str, bundle_id: BundleId, timeout: float, progress: Callable[[TransferProgress], None]
) -> Held:
    """Lets the supervisor fetch the bundle. Raises NotHere if there is no supervisor, it
    disappears, or its files cannot be read."""
    url = url.rstrip("/")
    clock = asyncio.get_running_loop().time
    deadline = clock() + timeout
    async with Http() as http:
        try:
            await _check_alive(http, url)
            path = f"/v1/host/bundles/{bundle_id}"
            asked = Request("POST", f"{path}/fetch", params=_seconds("timeout", timeout), timeout=CALL_SECS)
            view = await ask(http, url, asked, HostBundleView)
            was_here = view.state is HostState.DONE
            while view.state is not HostState.DONE:
                _check(view, bundle_id)
                if clock() >= deadline:
                    raise TorrentdistError("timed_out", what=f"the download of {bundle_id}", seconds=timeout)
                secs = min(POLL_SECS, max(0.0, deadline - clock()))
                poll = Request("GET", path, params=_seconds("wait", secs), timeout=secs + CALL_SECS)
                view = await ask(http, url, poll, HostBundleView)
                if view.transfer is not None:
                    progress(of_transfer(view.transfer))
        except Broken as broken:
            raise NotHere(broken.detail) from broken
    return await asyncio.to_thread(_open, view, was_here)


async def is_held(url: str, bundle_id: BundleId) -> bool:
    """Whether the supervisor has the bundle already, so that nothing needs to be fetched."""
    request = Request("GET", f"/v1/host/bundles/{bundle_id}", timeout=CALL_SECS)
    async with Http() as http:
        try:
            return (await ask(http, url.rstrip("/"), request, HostBundleView)).state is HostState.DONE
        except (Broken, TorrentdistError):
            return False


async def is_alive(url: str) -> bool:
    """Whether a supervisor answers."""
    async with Http() as http:
        try:
            await _check_alive(http, url.rstrip("/"))
            return True
        except (Broken, NotHere):
            return False


async def _check_alive(http: Http, url: str) -> None:
    response = await send(http, url, Request("GET", "/livez", timeout=ALIVE_SECS))
    if response.status_code != 200:
        raise NotHere(f"HTTP {response.status_code}")


def _seconds(name: str, secs: float) -> dict[str, str]:
    return {name: f"{secs:.3f}"} if secs < 1e9 else {}


def _check(view: HostBundleView, bundle_id: BundleId) -> None:
    if view.state in (HostState.FAILED, HostState.GONE):
        raise TorrentdistError("bundle_unavailable", id=bundle_id, detail=view.reason or str(view.state))


def _open(view: HostBundleView, was_here: bool) -> Held:
    content = Path(view.path)
    try:
        meta = parse_metafile((content.parent / "metafile").read_bytes())
        for file in meta.files:
            with open(content / file.path, "rb"):
                pass
    except OSError as exc:
        raise NotHere(f"its files cannot be read: {cause_text(exc)}") from exc
    if meta.digest != view.digest:
        raise NotHere(f"it names {view.digest} and holds {meta.digest}")
    if was_here:
        return Held(meta, content, Sources(local=meta.size), view.signatures)
    sources = Sources(plugin=meta.size) if view.transfer is None else view.transfer.sources
    return Held(meta, content, sources, view.signatures)
