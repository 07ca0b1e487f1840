"""The torrents of a swarm with TLS: added once this process is a member, and shown its newest
certificates.

Always: a transfer that comes before a certificate for its bundle waits for it. While the swarm has
two CAs, or goes over from none, what is complete is seeded under both, and a fetch ends under the
one that it began with.
Never: get certificates. The daemon or the command does, and passes them on.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Final

import libtorrent as lt

from torrentdist.model.access.swarm_membership import NO_TLS, SwarmMembership
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.swarm_messages import PeerAddress
from torrentdist.model.wire.transfer_messages import TransferPhase
from torrentdist.swarm.engine.preparation import ready_to_seed
from torrentdist.swarm.engine.transfer import Transfer
from torrentdist.swarm.engine.transfers import Transfers
from torrentdist.swarm.membership import wire_torrent

FIRST_PEERS_SECS: Final = 2.0
"""How long a fetch waits for its first peers before it decides whether it uses TLS."""
LOOK_SECS: Final = 5.0
"""How long a transfer that waits for a certificate is kept at most after it was removed."""


class MemberTorrents:
    """Call it only in the event loop."""

    def __init__(
        self, transfers: Transfers, spawn: Callable[[Coroutine[None, None, None]], object], *, plain_too: bool
    ) -> None:
        """`spawn` starts work that ends with the engine at the latest. `plain_too`: peers without
        TLS are served too."""
        self._transfers = transfers
        self._spawn = spawn
        self._always = (NO_TLS,) if plain_too else ()
        self._memberships: tuple[SwarmMembership, ...] = self._always
        """What to seed under: our certificates, and last NO_TLS if peers without TLS count."""
        self._joined = asyncio.Event()

    def join(self, memberships: Sequence[SwarmMembership]) -> None:
        """Takes what proves our membership from now on, the CA for new fetches first. Open
        connections go on as they are."""
        before, self._memberships = self._memberships, (*memberships, *self._always)
        for transfer in self._transfers.all():
            self._show(transfer)
        if before and {each.ca for each in before} != {each.ca for each in self._memberships}:
            self._spawn(self._follow_cas())
        joined, self._joined = self._joined, asyncio.Event()
        joined.set()

    async def add(self, transfer: Transfer, params: lt.add_torrent_params, *, local: int | None) -> None:
        """Adds a transfer to the session, as soon as this process is a member."""
        membership = await self._membership_for(transfer)
        if membership is None or not await self._put_ca(transfer, params, membership.ca):
            return
        transfer.ca = membership.ca
        self._transfers.add(transfer, params, local=local, membership=membership)
        self._show(transfer)  # There may be a newer certificate by now.
        with contextlib.suppress(TorrentdistError):
            await transfer.wait_done()
            await self._seed_under_all(transfer)

    async def _membership_for(self, transfer: Transfer) -> SwarmMembership | None:
        """Returns what a transfer begins under, once that is known; None: it is not wanted any
        more."""
        if self._always and transfer.active:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_PEERS_SECS):
                    await transfer.wait_peers()
        if self._always and fetches_without_tls(transfer.known_peers()):
            return NO_TLS
        while self._is_wanted(transfer):
            for each in self._memberships:
                if each.covers(transfer.digest):
                    return each
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECS):
                    await self._joined.wait()
        return None

    def _is_wanted(self, transfer: Transfer) -> bool:
        return transfer.phase is not TransferPhase.FAILED and self._transfers.get(transfer.digest) is transfer

    async def _put_ca(self, transfer: Transfer, params: lt.add_torrent_params, ca: str) -> bool:
        """Prepares a torrent of this CA. Returns whether its transfer is still wanted."""
        try:
            if ca:
                await asyncio.to_thread(wire_torrent.put_ca, params, transfer.meta, ca)
        except TorrentdistError as error:
            transfer.fail(error)
        return self._is_wanted(transfer)

    async def _follow_cas(self) -> None:
        for transfer in self._transfers.all():
            await self._seed_under_all(transfer)

    async def _seed_under_all(self, transfer: Transfer) -> None:
        """Seeds complete content under every membership, and under no other CA."""
        for membership in self._memberships:
            if transfer.phase is not TransferPhase.SEEDING or transfer.handle is None:
                return
            if membership.ca not in (transfer.ca, *transfer.twins):
                params = (await asyncio.to_thread(ready_to_seed, transfer.meta, transfer.save_dir)).params
                if not await self._put_ca(transfer, params, membership.ca):
                    return
                if membership.ca not in (transfer.ca, *transfer.twins):
                    self._transfers.add_twin(transfer, params, membership)
        self._drop_old(transfer, [each.ca for each in self._memberships])

    def _drop_old(self, transfer: Transfer, cas: Sequence[str]) -> None:
        # None of them is here yet if the CAs have changed again while the twins were added.
        heir = next((ca for ca in cas if ca in transfer.twins), None)
        if transfer.ca not in cas and heir is not None and transfer.handle is not None:
            old = transfer.handle
            transfer.take_twin(heir)
            self._transfers.drop(old)
        for ca in [ca for ca in transfer.twins if ca not in cas]:
            self._transfers.drop(transfer.twins.pop(ca))

    def _show(self, transfer: Transfer) -> None:
        torrents = {**transfer.twins, **({transfer.ca: transfer.handle} if transfer.handle else {})}
        for membership in self._memberships:
            if membership.ca and membership.ca in torrents:
                with contextlib.suppress(RuntimeError):  # The torrent may have left the session.
                    wire_torrent.show(torrents[membership.ca], membership)


def fetches_without_tls(peers: Sequence[PeerAddress]) -> bool:
    """Whether a host that can fetch both ways does so without TLS: only if nobody who has all of
    the bundle has TLS. Pure.
    """
    sources = [peer for peer in peers if peer.complete] or list(peers)
    return bool(sources) and not any(peer.has_tls for peer in sources)
