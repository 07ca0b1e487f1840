"""Client: the calls of the Python API for programs without an event loop, and for notebooks.

Always: a call works in every thread, also where an event loop runs, and after a fork. Ctrl-C ends
it and closes its connections.
Never: keep a thread, a connection or an event loop between two calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from torrentdist.api.async_client import TIMEOUT_SECS, AsyncClient, StrPath
from torrentdist.api.transfer_display import Progress
from torrentdist.bundle.metafile import Metafile
from torrentdist.client.bundles.transfer_progress import TransferProgress, UploadProgress
from torrentdist.model.configuration.config import Config
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.model.wire.fleet_messages import DistributeView, FleetView
from torrentdist.model.wire.transfer_messages import DownloadView, UploadPreview, UploadView

T = TypeVar("T")


class Client:
    """A cluster, as programs use it. AsyncClient describes the arguments and the calls."""

    def __init__(
        self,
        masters: str | Sequence[str] | None = None,
        *,
        token_file: StrPath | None = None,
        ca_file: StrPath | None = None,
        supervisor: str | None = None,
        config_file: StrPath | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._calls = AsyncClient(
            masters,
            token_file=token_file,
            ca_file=ca_file,
            supervisor=supervisor,
            config_file=config_file,
            settings=settings,
        )

    def upload(
        self,
        path: StrPath,
        id: str | None = None,
        *,
        min_replicas: int | None = None,
        sign: StrPath | None = None,
        timeout: float = TIMEOUT_SECS,
        progress: Progress[UploadProgress] = None,
    ) -> UploadView:
        """Puts a directory or a file into the cluster as a bundle. Returns once enough masters hold
        it.

        `id`: the bundle's name; by default derived from the path and the content. `min_replicas`:
        how many masters must hold it; by default as many as the cluster wants. `sign`: the file of
        a private key to sign it with. If fewer masters hold it after `timeout` seconds, the error
        is `partly`, and the masters go on among themselves.
        """
        call = self._calls.upload(path, id, min_replicas=min_replicas, sign=sign, timeout=timeout, progress=progress)
        return _run(call)

    def preview(
        self, path: StrPath, id: str | None = None, *, progress: Progress[UploadProgress] = None
    ) -> UploadPreview:
        """Returns what an upload would move, and uploads nothing."""
        return _run(self._calls.preview(path, id, progress=progress))

    def download(
        self,
        id: str,
        dest: StrPath,
        *,
        timeout: float = TIMEOUT_SECS,
        seed_for: float = 0.0,
        force: bool = False,
        known_in: Sequence[StrPath] = (),
        progress: Progress[TransferProgress] = None,
    ) -> DownloadView:
        """Puts a verified copy of a bundle at `dest`. It is yours: you may change it.

        After an error, the same call goes on where the last one stopped. `seed_for`: seconds to go
        on seeding, if no supervisor does. `force`: replace other content at `dest`. `known_in`:
        directories with known files, such as an older version, for a host without a supervisor.
        """
        call = self._calls.download(
            id,
            dest,
            timeout=timeout,
            seed_for=seed_for,
            force=force,
            known_in=known_in,
            progress=progress,
        )
        return _run(call)

    def path(self, id: str, *, timeout: float = TIMEOUT_SECS, progress: Progress[TransferProgress] = None) -> Path:
        """Returns a read-only directory of this host with the bundle, and fetches the bundle first
        if it is not here.

        It is the supervisor's directory. On a host without a supervisor it lies in the user's cache
        directory.
        """
        return _run(self._calls.path(id, timeout=timeout, progress=progress))

    def distribute(
        self,
        id: str,
        *,
        supervisors: Collection[str] = (),
        labels: Mapping[str, str] | None = None,
        share: float = 1.0,
        canary: int = 0,
        concurrency: int = 0,
        everywhere: bool = False,
        keep: float = 0.0,
        rate: int = 0,
        priority: str = "normal",
        wait: float = 1.0,
        timeout: float = TIMEOUT_SECS,
        progress: Progress[FleetView] = None,
    ) -> DistributeView:
        """Brings a bundle to every host, to these `supervisors`, or to those with these `labels`.

        `share`: only this share of them. `canary`: how many get it first; if one fails, the error
        is `distribution_stopped`. `concurrency`: how many fetch at the same time. `everywhere`:
        also hosts that register later. `keep`: seconds for which hosts keep it; 0: until it is
        removed. `rate`: most bytes per second for each host. `priority`: low, normal or high.

        Returns when the share `wait` of them has it (0: at once). If fewer have it after `timeout`
        seconds, the error is `partly`, and the transfer goes on in the background.
        """
        call = self._calls.distribute(
            id,
            supervisors=supervisors,
            labels=labels,
            share=share,
            canary=canary,
            concurrency=concurrency,
            everywhere=everywhere,
            keep=keep,
            rate=rate,
            priority=priority,
            wait=wait,
            timeout=timeout,
            progress=progress,
        )
        return _run(call)

    def wait(
        self, id: str, *, on: float = 1.0, timeout: float = TIMEOUT_SECS, progress: Progress[FleetView] = None
    ) -> DistributeView:
        """Waits until the share `on` of the hosts that were told to keep a bundle have it.

        If fewer have it after `timeout` seconds, the error is `partly`.
        """
        return _run(self._calls.wait(id, on=on, timeout=timeout, progress=progress))

    def bundles(self) -> list[BundleView]:
        """Lists the cluster's bundles."""
        return _run(self._calls.bundles())

    def bundle(self, id: str) -> BundleView:
        """Returns what the cluster knows of one bundle."""
        return _run(self._calls.bundle(id))

    def metafile(self, id: str) -> Metafile:
        """Returns the list of a bundle's files, directories and symlinks, with their hashes."""
        return _run(self._calls.metafile(id))

    def remove(self, id: str) -> BundleView:
        """Removes a bundle from the whole cluster."""
        return _run(self._calls.remove(id))

    def configuration(self) -> Config:
        """Returns the configuration that the calls use."""
        return self._calls.configuration()


def _run(call: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a call, which runs in an event loop of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(call)
    return _run_beside(call)


def _run_beside(call: Coroutine[Any, Any, T]) -> T:
    """Runs a call in another thread, since an event loop already runs in this one, as in a
    notebook."""
    result: Future[T] = Future()
    loop = asyncio.new_event_loop()
    task = loop.create_task(call)

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                result.set_result(runner.run(_outcome(task)))
        except BaseException as exc:
            result.set_exception(exc)

    thread = threading.Thread(target=work, name="torrentdist call", daemon=True)
    thread.start()
    try:
        return result.result()
    except BaseException:
        with contextlib.suppress(RuntimeError):  # the loop may have ended just now
            loop.call_soon_threadsafe(task.cancel)  # Ctrl-C, while this thread waited
        raise
    finally:
        thread.join()


async def _outcome(task: asyncio.Task[T]) -> T:
    return await task


_default = Client()
upload, download, path = _default.upload, _default.download, _default.path
distribute, wait = _default.distribute, _default.wait
