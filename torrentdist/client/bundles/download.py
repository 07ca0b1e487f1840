"""`download`: gets a bundle to DEST, through this host's supervisor or as a peer.

Always: it ends with a complete, verified and synced DEST, or with an error before its deadline.
What has arrived is kept for the next attempt. If DEST already holds the bundle, it succeeds without
transferring a byte.
Never: leave DEST incomplete, or replace it without the user's permission.
Longer than most files: it is all steps of one download, which share its deadline.
"""

import asyncio
import math
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.reuse.chunker import LARGE_FILE
from torrentdist.client.bundles.client_peer import ClientPeer, client_peer, seeding_home
from torrentdist.client.bundles.destination import (
    Memo,
    PartDirectory,
    check_room,
    drop_part,
    find_kept,
    make_parent,
    open_part,
    part_path,
    resolve,
)
from torrentdist.client.bundles.host_download import Held, NotHere, fetch_through_supervisor, is_held
from torrentdist.client.bundles.known_bundle import await_removal, record_and_metafile
from torrentdist.client.bundles.known_content import fill_download
from torrentdist.client.bundles.protected_paths import is_there
from torrentdist.client.bundles.signed_content import CheckedSignatures, check_signatures
from torrentdist.client.bundles.transfer_progress import TransferProgress, TransferStage, of_transfer
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.access.envelope import Envelope
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import EXIT_UNAVAILABLE, TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.records import BundleState
from torrentdist.model.wire.swarm_messages import PeerAddress
from torrentdist.model.wire.transfer_messages import DownloadView, Sources
from torrentdist.security.signing.trust import TrustMode, trust_in
from torrentdist.swarm.engine.engine import Transfer
from torrentdist.swarm.engine.preparation import ready_to_fetch

REFRESH_SECS = 0.25
MAX_KEPT_PEERS = 50

OnProgress = Callable[[TransferProgress], None]


class DownloadWanted(msgspec.Struct, frozen=True, kw_only=True):
    """How a bundle is downloaded."""

    timeout: float = math.inf
    seed_for: float = 0.0
    """Seconds to go on seeding as a peer, once DEST is complete."""
    force: bool = False
    """Whether it may replace other content of DEST."""
    known_in: Sequence[Path] = ()
    """Directories with files that need not be fetched."""


AS_USUAL = DownloadWanted()


async def download(
    client: MasterClient,
    config: Config,
    bundle_id: BundleId,
    dest: str | os.PathLike[str],
    wanted: DownloadWanted = AS_USUAL,
    *,
    progress: OnProgress = lambda news: None,
) -> DownloadView:
    """Returns once DEST is complete. Raises `timed_out` when the time is up.

    Files that this host has already are not fetched.
    """
    if not os.fspath(dest):
        raise TorrentdistError("empty_path", what="the destination")
    clock = asyncio.get_running_loop().time
    return await _Download(client, config, bundle_id, os.fspath(dest), wanted, clock(), progress).run()


class _Download(msgspec.Struct):
    client: MasterClient
    config: Config
    id: BundleId
    wanted_dest: str
    wanted: DownloadWanted
    began: float
    progress: OnProgress
    signed: CheckedSignatures = CheckedSignatures()
    signatures: list[Envelope] = []

    async def run(self) -> DownloadView:
        try:
            meta = await self._metafile()
        except TorrentdistError as error:
            if error.exit_code != EXIT_UNAVAILABLE or error.code == "bundle_lost":
                raise
            held = await self._held(None)
            if held is None:
                raise
            self._check(held.meta, held.signatures)
            try:
                return await self._from_supervisor(held)
            except NotHere:
                raise error from None
        dest = resolve(self.wanted_dest, meta)
        if await self._is_there(meta, dest):
            await asyncio.to_thread(drop_part, dest)
            return self._view(meta, dest, Sources(local=meta.size))
        held = await self._held(meta)
        if held is not None:
            with suppress(NotHere):
                return await self._from_supervisor(held)
        return await self._as_peer(meta, dest)

    async def _metafile(self) -> Metafile:
        """Returns the masters' metafile or, if no master can give it, the one kept from an earlier
        attempt."""
        try:
            record, meta = await record_and_metafile(self.client, self.id)
        except TorrentdistError as error:
            kept = await asyncio.to_thread(find_kept, self.wanted_dest, self.id)
            if kept is None or error.exit_code != EXIT_UNAVAILABLE:
                raise
            self._check(kept.metafile, kept.memo.signatures)
            return kept.metafile
        self._check(meta, record.signatures)
        if record.digest != meta.digest:
            raise TorrentdistError("corrupt", path=f"the metafile of {self.id}", detail=f"it is {meta.digest}")
        if record.state is BundleState.LOST:
            raise TorrentdistError("bundle_lost", id=self.id)
        return meta

    def _check(self, meta: Metafile, signatures: list[Envelope]) -> None:
        """Raises an error if [trust] does not allow this content."""
        self.signed = check_signatures(self.config.trust, self.id, meta.digest, signatures)
        self.signatures = signatures

    async def _is_there(self, meta: Metafile, dest: Path) -> bool:
        return await asyncio.to_thread(is_there, meta, dest, force=self.wanted.force)

    def _left(self) -> float:
        return max(0.0, self.began + self.wanted.timeout - asyncio.get_running_loop().time())

    def _view(self, meta: Metafile, dest: Path, sources: Sources) -> DownloadView:
        return DownloadView(
            id=self.id,
            digest=meta.digest,
            path=str(dest),
            size=meta.size,
            files=meta.file_count,
            seconds=asyncio.get_running_loop().time() - self.began,
            sources=sources,
            signers=list(self.signed.signers),
            warning=self.signed.warning,
        )

    async def _held(self, meta: Metafile | None) -> Held | None:
        """Returns the bundle from the supervisor, or None if this process has to fetch it
        itself."""
        url = self.config.client.supervisor
        if not url:
            return None
        if meta is not None:
            dest = resolve(self.wanted_dest, meta)
            await self._expect_room(url, meta, dest)
            await asyncio.to_thread(make_parent, dest)
        try:
            data_dir = self.config.supervisor.data_dir
            held = await fetch_through_supervisor(url, self.id, self._left(), self.progress, data_dir)
        except NotHere:
            return None
        if meta is None:
            # Without a master, only a signature shows that a stranger's metafile is the bundle's.
            return held if held.trusted or trust_in(self.config.trust, self.id).mode is TrustMode.ENFORCE else None
        return held if held.meta.digest == meta.digest else None

    async def _expect_room(self, url: str, meta: Metafile, dest: Path) -> None:
        """Raises `disk_full` if DEST has no room, before anything is fetched. A bundle that the
        supervisor already has may be reflinked. What an earlier attempt left is removed."""
        try:
            check_room(meta, dest, await asyncio.to_thread(PartDirectory(part_path(dest)).bytes_on_disk))
        except TorrentdistError:
            if not await is_held(url, self.id):
                raise

    async def _from_supervisor(self, held: Held) -> DownloadView:
        meta = held.meta
        dest = resolve(self.wanted_dest, meta)
        if not await self._is_there(meta, dest):
            loop = asyncio.get_running_loop()

            def placed(done: int, size: int) -> None:
                news = TransferProgress(phase=TransferStage.FINISHING, done=done, size=size)
                loop.call_soon_threadsafe(self.progress, news)

            await asyncio.to_thread(held.place, dest, self.wanted.force, placed)
        return self._view(meta, dest, held.sources)

    async def _as_peer(self, meta: Metafile, dest: Path) -> DownloadView:
        check_room(meta, dest, await asyncio.to_thread(PartDirectory(part_path(dest)).bytes_on_disk))
        with open_part(dest) as part:
            known = await asyncio.to_thread(part.begin, self.id, meta)
            self._keep(part, meta, known)
            have = await self._take_known(part, meta, dest)
            async with client_peer(self.client, self.config.client_swarm, [meta.digest], part.membership) as peer:
                sources = Sources(local=meta.size)
                if not have or not all(have):
                    transfer = await self._fetch(peer, part, meta, known, have)
                    sources = transfer.view().sources
                    await peer.engine.remove(meta.digest)
                self.progress(TransferProgress(phase=TransferStage.FINISHING, done=meta.size, size=meta.size))
                await asyncio.to_thread(part.publish, meta, dest, replace=self.wanted.force)
                view = self._view(meta, dest, sources)
                if self.wanted.seed_for > 0:
                    await self._seed(peer, meta, dest)
        return view

    async def _take_known(self, part: PartDirectory, meta: Metafile, dest: Path) -> Sequence[bool] | None:
        """Takes what this host has already. Returns which pieces are here, or None if that is not
        known."""
        directories = [*self.wanted.known_in, *([dest] if self.wanted.force else [])]
        large = any(file.size > LARGE_FILE for file in meta.files)
        try:
            async with asyncio.timeout(self._left()) as limit:
                recipe = await self.client.recipe(self.id) if large else None
                return (await fill_download(meta, recipe, part.content, self.config, directories, self.progress)).have
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._timed_out() from None

    def _timed_out(self) -> TorrentdistError:
        return TorrentdistError("timed_out", what=f"the download of {self.id}", seconds=self.wanted.timeout)

    async def _fetch(
        self,
        peer: ClientPeer,
        part: PartDirectory,
        meta: Metafile,
        known: list[PeerAddress],
        have: Sequence[bool] | None,
    ) -> Transfer:
        found = await peer.find_peers(meta)
        if not found and known:
            # No master answers, but the peers of the last attempt may still have it.
            peer.engine.allow({address.host for address in known})
        ready = await asyncio.to_thread(ready_to_fetch, meta, part.home, have)
        transfer = peer.fetch(meta, part.home, found or known, ready)
        try:
            await self._until_done(transfer)
        finally:
            met = peer.peers(meta.digest)[:MAX_KEPT_PEERS] or known
            self._keep(part, meta, met)
        return transfer

    def _keep(self, part: PartDirectory, meta: Metafile, peers: list[PeerAddress]) -> None:
        part.keep(Memo(bundle=self.id, digest=meta.digest, peers=peers, signatures=self.signatures))

    async def _until_done(self, transfer: Transfer) -> None:
        gone = await_removal(self.client, self.id, transfer.digest, lambda: transfer.view().done)
        ends = [asyncio.create_task(transfer.wait_done()), asyncio.create_task(gone)]
        try:
            while not any(end.done() for end in ends):
                if (left := self._left()) <= 0:
                    raise self._timed_out()
                await asyncio.wait(ends, timeout=min(REFRESH_SECS, left), return_when=asyncio.FIRST_COMPLETED)
                self.progress(of_transfer(transfer.view()))
            next(end for end in ends if end.done()).result()
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    async def _seed(self, peer: ClientPeer, meta: Metafile, dest: Path) -> None:
        clock = asyncio.get_running_loop().time
        until = clock() + self.wanted.seed_for
        with ExitStack() as stack:
            home = await asyncio.to_thread(stack.enter_context, seeding_home(meta, dest))
            transfer = peer.engine.seed(meta, home)
            peer.agent.poke()
            while (left := until - clock()) > 0:
                await asyncio.sleep(min(REFRESH_SECS, left))
                self.progress(of_transfer(transfer.view()))
            await peer.engine.remove(meta.digest)
