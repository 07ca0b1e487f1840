"""The torrents of a swarm with TLS: added once this process is a member, and shown its newest
certificate.

Always: a transfer that comes before the first certificate waits for it.
Never: get certificates. The daemon or the command does, and passes them on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import libtorrent as lt

from torrentdist.model.access.swarm_membership import SwarmMembership
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.transfer_messages import TransferPhase
from torrentdist.swarm.engine.transfer import Transfer
from torrentdist.swarm.engine.transfers import Transfers
from torrentdist.swarm.membership import wire_torrent


class MemberTorrents:
    """Call it only in the event loop."""

    def __init__(self, transfers: Transfers) -> None:
        self._transfers = transfers
        self._memberships: tuple[SwarmMembership, ...] = ()
        self._joined = asyncio.Event()

    def join(self, memberships: Sequence[SwarmMembership]) -> None:
        """Takes what proves our membership from now on. Open connections go on as they are."""
        self._memberships = tuple(memberships)
        for transfer in self._transfers.all():
            self._show(transfer)
        if memberships:
            self._joined.set()

    async def add(self, transfer: Transfer, params: lt.add_torrent_params, *, local: int | None) -> None:
        """Adds a transfer to the session, as soon as this process is a member."""
        await self._joined.wait()
        membership = self._memberships[0]
        try:
            await asyncio.to_thread(wire_torrent.put_ca, params, transfer.meta, membership.ca)
        except TorrentdistError as error:
            transfer.fail(error)
        if transfer.phase is TransferPhase.FAILED or self._transfers.get(transfer.digest) is not transfer:
            return  # It was removed meanwhile.
        transfer.ca = membership.ca
        self._transfers.add(transfer, params, local=local, membership=membership)
        self._show(transfer)  # There may be a newer certificate by now.

    def _show(self, transfer: Transfer) -> None:
        for membership in self._memberships:
            if membership.ca == transfer.ca and transfer.handle is not None:
                with contextlib.suppress(RuntimeError):  # The torrent may have left the session.
                    wire_torrent.show(transfer.handle, membership)
