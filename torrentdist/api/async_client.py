"""AsyncClient: the calls of the Python API, for programs that run an event loop.

Always: each call reads the configuration as the command line does, and opens and closes its own
connections. So threads and tasks may share a client, and a child process may use it after a fork.
Never: need a daemon on this host. Never load what only uploads, downloads and metafiles need before
such a call: every command starts with this file.
Longer than most files: it is the whole Python API, each call with its description.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from torrentdist.api.known_failures import known_failure
from torrentdist.api.shortfalls import expect_hosts, expect_replicas
from torrentdist.api.transfer_display import P, Progress, shown
from torrentdist.client.bundles.distribute import distribute as distribute_bundle
from torrentdist.client.bundles.distribute import wait_for_hosts
from torrentdist.client.bundles.transfer_progress import TransferProgress, UploadProgress
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.configuration.config import ClientConfig, Config
from torrentdist.model.configuration.settings import KEYS, load
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import bundle_id, supervisor_id
from torrentdist.model.policies.bundle_terms import priority_of
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.model.wire.fleet_messages import DistributeBody, DistributeView, FleetView
from torrentdist.model.wire.transfer_messages import DownloadView, UploadPreview, UploadView

if TYPE_CHECKING:
    from torrentdist.bundle.metafile import Metafile

StrPath = str | os.PathLike[str]
OpenMasters = Callable[[ClientConfig], AbstractAsyncContextManager[MasterClient]]
TIMEOUT_SECS = 3600.0

_log = logging.getLogger("torrentdist")


@asynccontextmanager
async def _open_masters(config: ClientConfig) -> AsyncIterator[MasterClient]:
    async with MasterClient(config, on_wait=lambda why: _log.info("waiting %s", why)) as client:
        yield client
        if client.stale is not None:
            _log.warning("%s", client.stale.sentence())


@contextmanager
def _translated() -> Iterator[None]:
    """Raises an expected error of the system as the error of the table that stands for it."""
    try:
        yield
    except Exception as exc:
        error = known_failure(exc)
        if error is None or error is exc:
            raise
        raise error from exc


class AsyncClient:
    """A cluster, as programs use it. What an argument does not say comes from the configuration:
    `./torrentdist.toml`, the user's and the system's file, and `TORRENTDIST_*` variables.

    `masters`: URLs of some masters, or one text `URL,URL`. `token_file`: the file with the token.
    `ca_file`: the CA of the masters. `supervisor`: the URL of this host's supervisor; empty: use
    none. `config_file`: a configuration file over the usual ones. `settings`: further keys, such
    as `{"client.deadline_secs": 10}`.
    """

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
        given = {
            "client.masters": masters if masters is None or isinstance(masters, str) else list(masters),
            "client.token_file": None if token_file is None else os.fspath(token_file),
            "client.ca_file": None if ca_file is None else os.fspath(ca_file),
            "client.supervisor": supervisor,
        }
        flags = {**(settings or {}), **{key: value for key, value in given.items() if value is not None}}
        for unknown in flags.keys() - KEYS.keys():
            raise TorrentdistError("config_invalid", origin="settings", detail=f"there is no key {unknown!r}")
        file = None if config_file is None else Path(config_file)
        self._config: Callable[[], Config] = lambda: load(config_file=file, flags=flags).config
        self._open_masters: OpenMasters = _open_masters

    @classmethod
    def of(cls, config: Config, open_masters: OpenMasters = _open_masters) -> Self:
        """Makes a client of a configuration that was loaded before. `open_masters` tells its user
        about waits and old answers in another way."""
        client = cls()
        client._config, client._open_masters = lambda: config, open_masters
        return client

    async def upload(
        self,
        path: StrPath,
        id: str | None = None,
        *,
        min_replicas: int | None = None,
        sign: StrPath | None = None,
        timeout: float = TIMEOUT_SECS,
        progress: Progress[UploadProgress] = None,
    ) -> UploadView:
        """Puts a directory or a file into the cluster as a bundle, or the objects below a URL such
        as `s3://bucket/prefix`. Returns once enough masters hold it.

        `id`: the bundle's name; by default derived from the path and the content. `min_replicas`:
        how many masters must hold it; by default as many as the cluster wants. `sign`: the file of
        a private key to sign it with. If fewer masters hold it after `timeout` seconds, the error
        is `partly`, and the masters go on among themselves.
        """
        from torrentdist.client.bundles.upload import UploadWanted
        from torrentdist.client.bundles.upload import upload as upload_bundle
        from torrentdist.security.signing.signing_keys import read_signer
        from torrentdist.traces.upload_trace import traced_upload

        name = None if id is None else bundle_id(id)
        async with self._call(progress) as (config, client, show), traced_upload(config.traces) as trace:
            signer = None if sign is None else read_signer(Path(sign), config.trust)
            wanted = UploadWanted(min_replicas=min_replicas, timeout=timeout, signer=signer, swarm=config.client_swarm)
            if isinstance(path, str) and "://" in path:
                from torrentdist.client.storage.object_upload import upload_objects

                view = await upload_objects(client, path, name, wanted, progress=show)
            else:
                view = await upload_bundle(client, Path(path), name, wanted, progress=show, trace=trace)
            await expect_replicas(client, view)
            return view

    async def preview(
        self, path: StrPath, id: str | None = None, *, progress: Progress[UploadProgress] = None
    ) -> UploadPreview:
        """Returns what an upload would move, and uploads nothing."""
        from torrentdist.client.bundles.upload import preview_upload

        name = None if id is None else bundle_id(id)
        async with self._call(progress) as (_, client, show):
            return await preview_upload(client, Path(path), name, progress=show)

    async def download(
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
        from torrentdist.client.bundles.download import DownloadWanted
        from torrentdist.client.bundles.download import download as download_bundle

        name, known = bundle_id(id), [Path(each) for each in known_in]
        wanted = DownloadWanted(timeout=timeout, seed_for=seed_for, force=force, known_in=known)
        async with self._call(progress) as (config, client, show):
            return await download_bundle(client, config, name, dest, wanted, progress=show)

    async def path(
        self, id: str, *, timeout: float = TIMEOUT_SECS, progress: Progress[TransferProgress] = None
    ) -> Path:
        """Returns a read-only directory of this host with the bundle, and fetches the bundle first
        if it is not here.

        It is the supervisor's directory. On a host without a supervisor it lies in the user's cache
        directory.
        """
        from torrentdist.api.trusted_bundles import cached_path, check_trust
        from torrentdist.client.bundles.host_download import NotHere, fetch_through_supervisor

        name = bundle_id(id)
        async with self._call(progress) as (config, client, show):
            if url := config.client.supervisor:
                with suppress(NotHere):
                    held = await fetch_through_supervisor(url, name, timeout, show, config.supervisor.data_dir)
                    # Another user could change the files after a check, so the cache gets a copy.
                    if held.trusted:
                        check_trust(config, name, held.meta.digest, held.signatures)
                        return held.content
            return await cached_path(client, config, name, timeout, show)

    async def distribute(
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
        name, chosen = bundle_id(id), [supervisor_id(each) for each in supervisors]
        how = DistributeBody(
            share=share,
            canary=canary,
            concurrency=concurrency,
            everywhere=everywhere,
            keep_secs=keep,
            rate=rate,
            priority=priority_of(priority),
        )
        async with self._call(progress) as (_, client, show):
            view = await distribute_bundle(
                client,
                name,
                supervisors=chosen,
                labels=labels,
                how=how,
                wait_share=wait,
                timeout=timeout,
                progress=show,
            )
            expect_hosts(view, wait)
            return view

    async def wait(
        self,
        id: str,
        *,
        on: float = 1.0,
        timeout: float = TIMEOUT_SECS,
        progress: Progress[FleetView] = None,
    ) -> DistributeView:
        """Waits until the share `on` of the hosts that were told to keep a bundle have it.

        If fewer have it after `timeout` seconds, the error is `partly`.
        """
        name = bundle_id(id)
        async with self._call(progress) as (_, client, show):
            view = await wait_for_hosts(client, name, share=on, timeout=timeout, progress=show)
            expect_hosts(view, on)
            return view

    async def bundles(self) -> list[BundleView]:
        """Lists the cluster's bundles."""
        async with self._masters() as (_, client):
            return await client.bundles()

    async def bundle(self, id: str) -> BundleView:
        """Returns what the cluster knows of one bundle."""
        name = bundle_id(id)
        async with self._masters() as (_, client):
            return await client.bundle(name)

    async def metafile(self, id: str) -> Metafile:
        """Returns the list of a bundle's files, directories and symlinks, with their hashes."""
        from torrentdist.api.trusted_bundles import checked_metafile

        name = bundle_id(id)
        async with self._masters() as (config, client):
            return await checked_metafile(client, config, name)

    async def remove(self, id: str) -> BundleView:
        """Removes a bundle from the whole cluster."""
        name = bundle_id(id)
        async with self._masters() as (_, client):
            return await client.remove(name)

    def configuration(self) -> Config:
        """Returns the configuration that the calls use."""
        with _translated():
            return self._config()

    @asynccontextmanager
    async def _call(self, progress: Progress[P]) -> AsyncIterator[tuple[Config, MasterClient, Callable[[P], None]]]:
        with shown(progress) as show:
            async with self._masters() as (config, client):
                yield config, client, show

    @asynccontextmanager
    async def _masters(self) -> AsyncIterator[tuple[Config, MasterClient]]:
        with _translated():
            config = await asyncio.to_thread(self._config)
            async with self._open_masters(config.client) as client:
                yield config, client
