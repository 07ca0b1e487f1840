"""Makes this process a peer for the duration of one command: an engine, and an agent that
announces.

Always: only addresses that a master named may connect. However the command ends, the masters are
informed and the engine is closed.
Never: know what is transferred, or why.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from msgspec.structs import replace

from torrentdist.bundle.files.durability import disk_failures
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.packs.pack_files import write_packs
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.client.storage.temporary_homes import temporary_home
from torrentdist.client.swarm_access import stay_member, swarm_memberships
from torrentdist.http.api_calls import Broken, Request, send
from torrentdist.model.configuration.config import SwarmConfig
from torrentdist.model.ids import Digest, PeerId, new_random_id
from torrentdist.model.loopback import is_loopback
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole, SwarmEntry, swarm_entry
from torrentdist.model.wire.transfer_messages import TransferPhase
from torrentdist.swarm.agent import LocalPeer, MasterAccess, SwarmAgent
from torrentdist.swarm.engine.engine import Engine, Transfer
from torrentdist.swarm.engine.preparation import ReadyTorrent
from torrentdist.swarm.engine.session_settings import engine_config
from torrentdist.swarm.swarm_picture import SwarmPicture

ANNOUNCE_SECS = 0.5
"""Longest wait for masters to answer an announce. Live masters answer within milliseconds."""
OFFER_SECS = 10.0
SEEDING = "torrentdist-seeds-"


class ClientPeer:
    def __init__(self, client: MasterClient, engine: Engine) -> None:
        self.engine = engine
        self._client = client
        self._ahead: dict[Digest, SwarmEntry] = {}
        self._offers: dict[Digest, asyncio.Task[None]] = {}
        peer = LocalPeer(
            id=PeerId(new_random_id("client")),
            role=PeerRole.CLIENT,
            ports=lambda: (engine.port, engine.tls_port),
            swarms=self._swarms,
        )
        access = MasterAccess(http=client.http, masters=lambda: client.masters)
        self.agent = SwarmAgent(peer, access, self._on_picture)

    async def announce(self) -> None:
        """Announces to all masters, and waits at most ANNOUNCE_SECS for their answers."""
        telling = asyncio.create_task(self.agent.announce())
        try:
            await asyncio.wait({telling}, timeout=ANNOUNCE_SECS)
        finally:
            telling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await telling

    async def find_peers(self, meta: Metafile) -> list[PeerAddress]:
        """Returns the peers of the swarm. A transfer that starts with its peers loses no time."""
        self._ahead[meta.digest] = SwarmEntry(digest=meta.digest, complete=False, size=meta.size)
        await self.announce()
        return self.peers(meta.digest)

    def fetch(self, meta: Metafile, home: Path, peers: list[PeerAddress], ready: ReadyTorrent) -> Transfer:
        """Starts a download, by the masters' plan if many hosts fetch at the same time."""
        swarm = self.agent.picture.swarms.get(meta.digest)
        transfer = self.engine.fetch(meta, home, peers, swarm.place if swarm else None, ready)
        self.agent.poke()
        return transfer

    def peers(self, digest: Digest) -> list[PeerAddress]:
        swarm = self.agent.picture.swarms.get(digest)
        return list(swarm.peers) if swarm else []

    def _swarms(self) -> list[SwarmEntry]:
        transfers = [_entry(transfer) for transfer in self.engine.transfers()]
        begun = {entry.digest for entry in transfers}
        return transfers + [entry for entry in self._ahead.values() if entry.digest not in begun]

    def _on_picture(self, picture: SwarmPicture) -> None:
        self._client.learn(picture.masters)
        self.engine.allow(picture.addresses)
        self.engine.set_rtt(picture.rtt)
        for digest, swarm in picture.swarms.items():
            transfer = self.engine.transfer(digest)
            if transfer is not None:
                self.engine.conduct(digest, swarm.place)
                if swarm.peers:
                    transfer.add_peers(swarm.peers)
        for digest in picture.wanted:
            transfer = self.engine.transfer(digest)
            if transfer is not None and digest not in self._offers:
                offer = self._offers[digest] = asyncio.create_task(self._offer(transfer.meta))
                offer.add_done_callback(lambda _, digest=digest: self._offers.pop(digest))  # type: ignore[misc]

    async def _offer(self, meta: Metafile) -> None:
        """Sends the metafile to all masters, since at least one of them cannot get it elsewhere."""
        request = Request("PUT", f"/v1/metafiles/{meta.digest}", content=meta.raw, timeout=OFFER_SECS)
        await asyncio.gather(*(self._put(url, request) for url in self._client.masters))

    def stop_offering(self) -> list[asyncio.Task[None]]:
        offers = list(self._offers.values())
        for offer in offers:
            offer.cancel()
        return offers

    async def _put(self, url: str, request: Request) -> None:
        with contextlib.suppress(Broken):
            await send(self._client.http, url, request)


@asynccontextmanager
async def client_peer(
    client: MasterClient, swarm: SwarmConfig, digests: Sequence[Digest], membership: Path | None = None
) -> AsyncIterator[ClientPeer]:
    """`digests`: the bundles to exchange. `membership`: the file that keeps this command's
    certificates of the swarm; None: no file does."""
    memberships = await swarm_memberships(client, digests, membership)
    settings = engine_config(swarm, listen_host(client.masters), tls=bool(memberships))
    engine = Engine(replace(settings, sends_at_once=True))
    engine.join(memberships)
    await engine.start()
    # Admit no address until a master has named one.
    engine.allow(())
    peer = ClientPeer(client, engine)
    announcing = asyncio.create_task(peer.agent.run(), name="announce")
    renewing = asyncio.create_task(stay_member(client, engine, digests, memberships), name="swarm membership")
    try:
        yield peer
    finally:
        offers = peer.stop_offering()
        announcing.cancel()
        renewing.cancel()
        await asyncio.gather(*offers, announcing, renewing, peer.agent.leave(), engine.close(), return_exceptions=True)


def listen_host(masters: list[str]) -> str:
    """Returns the address to listen on. It is loopback if all masters are there, so that a local
    cluster opens no port to the outside."""
    return "127.0.0.1" if all(is_loopback(urlsplit(url).hostname or "") for url in masters) else "0.0.0.0"


@contextmanager
def seeding_home(meta: Metafile, path: Path) -> Iterator[Path]:
    """Creates a directory in the engine's layout, whose content is a link to `path`, with the packs
    of small files. Blocks for as long as it takes to copy the small files."""
    with temporary_home(SEEDING, meta.packed_size) as home:
        real = os.path.realpath(path)
        with disk_failures(home, needed=meta.packed_size):
            write_packs(meta, Path(real), home)
        if meta.single_file:
            (home / "content").mkdir()
            os.symlink(real, home / "content" / meta.name)
        else:
            os.symlink(real, home / "content")
        yield home


def _entry(transfer: Transfer) -> SwarmEntry:
    view = transfer.view()
    return swarm_entry(view, complete=view.phase is TransferPhase.SEEDING, problem=view.error)
