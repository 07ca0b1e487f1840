"""Downloads through this host's supervisor, which fetches the bundle, keeps it and goes on seeding.
DEST is a copy.

Always: the supervisor's content is copied only if the metafile next to it belongs to the bundle.
Content of a listener that may be another user's program is marked as not trusted, and its copy is
hashed before it is used.
Never: give the supervisor the cluster's token, because any process may listen on its port.
"""

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

from torrentdist.bundle.files.copying import place_content, replace_content
from torrentdist.bundle.metafile import MAX_METAFILE_BYTES, Metafile, parse_metafile
from torrentdist.client.bundles.destination import make_parent
from torrentdist.client.bundles.transfer_progress import TransferProgress, of_transfer
from torrentdist.http.api_calls import Broken, Request, ask, send
from torrentdist.http.connection_pool import Http
from torrentdist.http.port_owner import is_trusted_listener
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

_log = logging.getLogger("torrentdist")


class NotHere(Exception):
    """The supervisor cannot be used for this download, so this process has to be a peer itself."""


class Held:
    """A bundle that the supervisor has published and this process can read.

    `trusted`: whether the program that named it runs as root, as this user or as the supervisor's
    user. The files of others have to be hashed after they are copied.
    """

    def __init__(self, meta: Metafile, content: Path, sources: Sources, signatures: list[Envelope]) -> None:
        self.signatures = signatures
        self.meta = meta
        self.content = content
        self.sources = sources
        self.trusted = False

    def place(self, dest: Path, force: bool, progress: Callable[[int, int], None]) -> None:
        """Puts a copy at `dest`, with `force` in place of other content. Raises NotHere if a
        stranger's files are not the bundle's."""
        make_parent(dest)
        put = replace_content if force else place_content
        try:
            put(self.meta, self.content, dest, progress, hashed=not self.trusted)
        except TorrentdistError as error:
            if self.trusted or error.code != "corrupt":
                raise
            _log.warning("a program of another user on the supervisor's port offers altered files: %s", error.message)
            raise NotHere(error.message) from error


async def fetch_through_supervisor(
    url: str, bundle_id: BundleId, timeout: float, progress: Callable[[TransferProgress], None], data_dir: str = ""
) -> Held:
    """Lets the supervisor fetch the bundle. Raises NotHere if there is no supervisor, it
    disappears, or its files cannot be read.

    `data_dir`: the supervisor's directory. A listener that runs as its owner is trusted.
    """
    url = url.rstrip("/")
    trusted = await asyncio.to_thread(is_trusted_listener, url, data_dir)
    try:
        view, was_here = await _published(url, bundle_id, timeout, progress)
    except Broken as broken:
        raise NotHere(broken.detail) from broken
    except TorrentdistError as error:
        if trusted or error.code == "timed_out":
            raise
        raise NotHere(f"a program of another user says: {error.message}") from error
    held = await asyncio.to_thread(_open, view, was_here)
    # Another program may have taken the port since the first look.
    held.trusted = trusted and await asyncio.to_thread(is_trusted_listener, url, data_dir)
    return held


async def _published(
    url: str, bundle_id: BundleId, timeout: float, progress: Callable[[TransferProgress], None]
) -> tuple[HostBundleView, bool]:
    """Waits until the supervisor has published the bundle. Returns its view, and whether the bundle
    was there before."""
    clock = asyncio.get_running_loop().time
    began, deadline = clock(), clock() + timeout
    async with Http() as http:
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
            params = _seconds("wait", secs) | _seconds("asked", clock() - began)
            poll = Request("GET", path, params=params, timeout=secs + CALL_SECS)
            view = await ask(http, url, poll, HostBundleView)
            if view.transfer is not None:
                progress(of_transfer(view.transfer))
        return view, was_here


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
        meta = parse_metafile(_read(content.parent / "metafile", MAX_METAFILE_BYTES + 1))
        for file in meta.files:
            _read(content / file.path, 0)
    except OSError as exc:
        raise NotHere(f"its files cannot be read: {cause_text(exc)}") from exc
    except (TorrentdistError, ValueError) as error:
        raise NotHere(f"its metafile cannot be used: {error}") from error
    if meta.digest != view.digest:
        raise NotHere(f"it names {view.digest} and holds {meta.digest}")
    if was_here:
        return Held(meta, content, Sources(local=meta.size), view.signatures)
    sources = Sources(plugin=meta.size) if view.transfer is None else view.transfer.sources
    return Held(meta, content, sources, view.signatures)


def _read(path: Path, most: int) -> bytes:
    """Reads the beginning of a regular file. A fifo of another user would keep the thread for
    ever."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is no file")
        return file.read(most)
