"""`upload`: puts a local directory or file into the cluster. If possible, each byte is sent only
once.

Always: content that the cluster already has is not sent. Files are read in place and never written.
The answer never counts more masters than hold the bundle.
Never: go on seeding once enough masters hold the bundle.
Longer than most files: it is all steps of one upload, which share its deadline.
"""

import asyncio
import math
import os
import re
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from torrentdist.bundle.files.file_modes import owner_only_files
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile_and_recipe
from torrentdist.bundle.reuse.compressed_files import compressed_archives
from torrentdist.client.bundles.chunked_upload import opened_with_proof, send_content
from torrentdist.client.bundles.client_peer import client_peer, seeding_home
from torrentdist.client.bundles.known_bundle import bundle_and_reuse, bundle_there, packed_if_read
from torrentdist.client.bundles.transfer_progress import TransferStage, UploadProgress
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.configuration.config import SwarmConfig
from torrentdist.model.errors import EXIT_DISK, TorrentdistError
from torrentdist.model.ids import MAX_ID_LENGTH, BundleId, Digest, MasterId
from torrentdist.model.records import BundleState
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.model.wire.transfer_messages import TransferPhase, UploadPreview, UploadView
from torrentdist.security.signing.signing_keys import Signer
from torrentdist.swarm.engine.engine import Transfer
from torrentdist.traces.upload_trace import UploadTrace

REFRESH_SECS = 0.25
STUCK_SECS = 3.0
UNREACHABLE_SECS = 10.0
"""If no byte was sent by then, no master can connect here, so the bytes are sent over HTTP."""
_DIGEST_DIGITS = 12

OnProgress = Callable[[UploadProgress], None]


class UploadWanted(msgspec.Struct, frozen=True, kw_only=True):
    """How a bundle is uploaded."""

    min_replicas: int | None = None
    """How many masters must hold it. None: as many as the cluster wants."""
    timeout: float = math.inf
    signer: Signer | None = None
    """Signs the digest that was computed here."""
    swarm: SwarmConfig = SwarmConfig()
    unreachable_secs: float = UNREACHABLE_SECS

    def replicas(self, view: BundleView) -> int:
        return view.min_replicas if self.min_replicas is None else self.min_replicas


AS_USUAL = UploadWanted()


def default_id(path: Path, digest: Digest) -> BundleId:
    """Returns the name of the directory or file with the start of the digest, so that different
    content gets a different id."""
    base = os.path.basename(os.path.realpath(path))
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", base).lstrip("._-").rstrip("-")
    return BundleId(f"{cleaned[: MAX_ID_LENGTH - _DIGEST_DIGITS - 1] or 'bundle'}-{digest[:_DIGEST_DIGITS]}")


async def preview_upload(
    client: MasterClient, path: Path, bundle_id: BundleId | None = None, *, progress: OnProgress = lambda news: None
) -> UploadPreview:
    """Returns what an upload would move. Nothing is sent but the metafile."""

    async def preview(packed: bool) -> UploadPreview:
        meta, recipe = await _hash(path, progress, packed)
        chosen = bundle_id or default_id(path, meta.digest)
        meta = (await bundle_there(client, chosen, meta)).meta
        reuse = await client.reuse(meta, recipe)
        return UploadPreview(
            id=chosen,
            digest=meta.digest,
            size=meta.size,
            files=meta.file_count,
            new_bytes=reuse.new_bytes,
            reused_bytes=reuse.reused_bytes,
            reused_from=reuse.reused_from,
            compressed=await asyncio.to_thread(compressed_archives, meta, path),
            owner_only=await asyncio.to_thread(owner_only_files, meta, path),
        )

    return await packed_if_read(preview)


async def upload(
    client: MasterClient,
    path: Path,
    bundle_id: BundleId | None = None,
    wanted: UploadWanted = AS_USUAL,
    *,
    progress: OnProgress = lambda news: None,
    trace: UploadTrace | None = None,
) -> UploadView:
    """Returns once enough masters hold the bundle, or when the time is up. Then `achieved` is false
    and the masters go on. `trace` gets a span if something is uploaded."""
    clock = asyncio.get_running_loop().time
    began = clock()

    async def in_form(packed: bool) -> UploadView:
        meta, recipe = await _hash(path, progress, packed)
        chosen = bundle_id or default_id(path, meta.digest)
        (there, meta), reuse = await bundle_and_reuse(client, chosen, meta, recipe)
        if there is None or there.replicas < wanted.replicas(there) or there.state is not BundleState.AVAILABLE:
            work = _Upload(client, meta, recipe, path, chosen, wanted, began + wanted.timeout, progress)
            work.traceparent = "" if trace is None else trace.begun(chosen, meta.digest, meta.size)
            there = await work.run()
        elif wanted.signer is not None:
            await client.add_signature(chosen, wanted.signer.bundle(chosen, meta.digest))
        replicas = wanted.replicas(there)
        return UploadView(
            id=chosen,
            digest=meta.digest,
            size=meta.size,
            files=meta.file_count,
            replicas=there.replicas,
            min_replicas=replicas,
            achieved=there.replicas >= replicas and there.state is not BundleState.UPLOADING,
            seconds=clock() - began,
            new_bytes=None if reuse is None else reuse.new_bytes,
            reused_bytes=None if reuse is None else reuse.reused_bytes,
            reused_from=[] if reuse is None else reuse.reused_from,
            compressed=await asyncio.to_thread(compressed_archives, meta, path),
            owner_only=await asyncio.to_thread(owner_only_files, meta, path),
        )

    return await packed_if_read(in_form)


async def _hash(path: Path, progress: OnProgress, packed: bool) -> tuple[Metafile, bytes | None]:
    loop = asyncio.get_running_loop()

    def hashed(done: int, size: int) -> None:
        loop.call_soon_threadsafe(progress, UploadProgress(phase=TransferStage.HASHING, done=done, size=size))

    return await asyncio.to_thread(make_metafile_and_recipe, path, progress=hashed, packed=packed)


@dataclass
class _Upload:
    client: MasterClient
    meta: Metafile
    recipe: bytes | None
    path: Path
    id: BundleId
    wanted: UploadWanted
    deadline: float
    progress: OnProgress
    replicas: int = field(default=0, init=False)
    needed: int = field(default=0, init=False)
    lacking: Mapping[MasterId, str] = field(default_factory=dict, init=False)
    arrived: int = field(default=0, init=False)
    traceparent: str = field(default="", init=False)

    async def run(self) -> BundleView:
        async with AsyncExitStack() as stack:
            home = await asyncio.to_thread(stack.enter_context, seeding_home(self.meta, self.path))
            async with client_peer(self.client, self.wanted.swarm, [self.meta.digest]) as peer:
                transfer = peer.engine.seed(self.meta, home)
                await peer.announce()
                peer.engine.crowd(self.meta.digest, len(peer.agent.picture.masters) or None)
                opened = await opened_with_proof(self.client, self.id, self.meta, self.path, self._sent, self._open)
                if (signer := self.wanted.signer) is not None:  # now, so that no host meets it unsigned
                    await self.client.add_signature(self.id, signer.bundle(self.id, self.meta.digest))
                self.replicas, self.needed = opened.replicas, self.wanted.replicas(opened)
                peer.agent.poke(REFRESH_SECS)  # a master that nobody can connect to is dialled from here
                return await self._until_replicated(transfer, peer.agent.poke)

    async def _until_replicated(self, transfer: Transfer, announce: Callable[[], None]) -> BundleView:
        clock = asyncio.get_running_loop().time
        opened_at = moved_at = heard_at = clock()
        moved, arrived = (0, 0), 0
        waiting = asyncio.create_task(
            self.client.wait_replicas(self.id, self.needed, self.deadline - opened_at, self._note, self.replicas)
        )
        sending: asyncio.Task[BundleView] | None = None
        opening: asyncio.Task[BundleView] | None = None
        try:
            while not waiting.done():
                await asyncio.wait({waiting}, timeout=REFRESH_SECS)
                if sending is None:
                    self._show(transfer)
                    self._check_offered(transfer)
                    if moved != (now := (self.replicas, transfer.view().uploaded)):
                        moved, moved_at = now, clock()
                    elif clock() - moved_at > STUCK_SECS and (opening is None or opening.done()):
                        # The leader that took the metafile may have died as the only one that had
                        # it. Or masters that lack it cannot reach the leader, and ask any peer that
                        # announces.
                        moved_at = clock()
                        announce()
                        if opening is not None:
                            self._check_opened(opening)
                        opening = asyncio.create_task(self._open(again=True))
                    if self.arrived > arrived:  # A master is busy with what it has already.
                        arrived, heard_at = self.arrived, clock()
                    if clock() - heard_at > self.wanted.unreachable_secs and self._nobody_came(transfer):
                        sending = asyncio.create_task(send_content(self.client, self.meta, self.path, self._sent))
                elif sending.done():
                    _check_sent(sending)
                    if self.replicas == 0:  # another leader lacks it: it is opened and sent again
                        sending, heard_at = None, clock()
            return waiting.result()
        finally:
            tasks = [task for task in (waiting, sending, opening) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _open(self, *, again: bool = False) -> BundleView:
        recipe = await self.client.offer_recipe(self.id, self.recipe) if self.recipe else ""
        wanted = self.wanted.min_replicas
        return await self.client.open_upload(self.id, self.meta.raw, wanted, recipe, self.traceparent, again=again)

    def _check_opened(self, opening: asyncio.Task[BundleView]) -> None:
        """Raises the error of a failed attempt if the disk is full, which does not pass. Otherwise
        the next attempt may succeed, and the wait's own errors end the upload."""
        error = opening.exception()
        if self.replicas == 0 and isinstance(error, TorrentdistError) and error.exit_code == EXIT_DISK:
            raise error

    def _check_offered(self, transfer: Transfer) -> None:
        if transfer.view().phase is TransferPhase.FAILED:
            raise TorrentdistError("changed_while_reading", path=str(self.path))

    def _nobody_came(self, transfer: Transfer) -> bool:
        return self.replicas == 0 and transfer.view().uploaded == 0

    def _note(self, view: BundleView) -> None:
        self.replicas = view.replicas
        self.lacking = view.lacking
        self.arrived = view.arrived

    def _show(self, transfer: Transfer) -> None:
        view = transfer.view()
        done = min(view.uploaded, self.meta.size)
        rate = view.upload_rate
        self.progress(
            UploadProgress(
                phase=TransferStage.SEEDING,
                done=done,
                size=self.meta.size,
                rate=rate,
                eta=(self.meta.size - done) / rate if rate > 0 else None,
                replicas=self.replicas,
                wanted=self.needed,
                peers=view.peers,
                lacking=self.lacking,
            )
        )

    def _sent(self, offset: int) -> None:
        size = self.meta.size
        self.progress(
            UploadProgress(
                phase=TransferStage.SENDING, done=offset, size=size, replicas=self.replicas, wanted=self.needed
            )
        )


def _check_sent(sending: asyncio.Task[BundleView]) -> None:
    error = sending.exception()  # `not_found`: a master got the bundle from the swarm after all
    if error is not None and not (isinstance(error, TorrentdistError) and error.code == "not_found"):
        raise error
