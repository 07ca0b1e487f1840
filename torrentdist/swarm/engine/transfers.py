"""The transfers of one engine, and the dispatch of libtorrent's alerts to them.

Always: a transfer is found by its digest, and by the hash that libtorrent uses in alerts. The two
are equal in a swarm without TLS. A removal ends within a deadline.
Never: delete files, or touch the session except to add and remove torrents.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NewType

import libtorrent as lt

from torrentdist.model.access.swarm_membership import SwarmMembership
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.events import Fact, HashFailed
from torrentdist.model.ids import Digest
from torrentdist.swarm.engine.session import Handlers, LibtorrentSession
from torrentdist.swarm.engine.transfer import Transfer

REMOVE_SECS: Final = 30.0
"""How long libtorrent may take to close the files of a transfer."""

WireHash = NewType("WireHash", str)
"""The v2 info-hash that peers exchange, as libtorrent knows it."""


def wire_hash(hashes: lt.info_hash_t) -> WireHash:
    return WireHash(str(hashes.v2))


class Transfers:
    """All transfers of the engine. Call it only in the event loop."""

    def __init__(self, session: LibtorrentSession, tell: Callable[[Fact], None]) -> None:
        self._session = session
        self._tell = tell
        self.on_entered: list[Callable[[Digest], None]] = []
        """Called with the digest of each transfer that is taken in."""
        self._by_digest: dict[Digest, Transfer] = {}
        self._awake: dict[Digest, Transfer] = {}
        """Transfers that may be active."""
        self._digests: dict[WireHash, Digest] = {}
        self._removals: dict[Digest, asyncio.Future[None]] = {}

    def __len__(self) -> int:
        return len(self._by_digest)

    def get(self, digest: Digest) -> Transfer | None:
        return self._by_digest.get(digest)

    def all(self) -> list[Transfer]:
        return list(self._by_digest.values())

    def among(self, digests: Iterable[Digest]) -> list[Transfer]:
        """The transfers of these digests. A digest that is in none is passed over."""
        return [self._by_digest[digest] for digest in digests if digest in self._by_digest]

    def moving(self) -> list[Transfer]:
        """Returns the active transfers. The cost does not depend on the number of idle bundles."""
        self._awake = {digest: transfer for digest, transfer in self._awake.items() if not transfer.at_rest}
        return list(self._awake.values())

    def enter(self, transfer: Transfer) -> None:
        """Registers a transfer, which may be added to the session later."""
        self._by_digest[transfer.digest] = transfer
        self._note_movement(transfer)
        for tell in self.on_entered:
            tell(transfer.digest)

    def add(
        self,
        transfer: Transfer,
        params: lt.add_torrent_params,
        *,
        local: int | None,
        membership: SwarmMembership | None = None,
    ) -> None:
        """Adds a transfer to the session, with its known peers. The transfer fails if libtorrent
        refuses it."""
        params.peers = transfer.endpoints()
        try:
            handle = self._session.add(params, membership)
        except RuntimeError as exc:
            transfer.fail(TorrentdistError("internal", detail=f"libtorrent refused the transfer: {exc}"))
        else:
            self.name(wire_hash(handle.info_hashes()), transfer.digest)
            transfer.added(handle, local=local)

    def add_twin(self, transfer: Transfer, params: lt.add_torrent_params, membership: SwarmMembership) -> None:
        """Seeds the same content under another CA too, or without TLS. The transfer fails if
        libtorrent refuses it."""
        try:
            handle = self._session.add(params, membership)
        except RuntimeError as exc:
            transfer.fail(TorrentdistError("internal", detail=f"libtorrent refused the transfer: {exc}"))
        else:
            self.name(wire_hash(handle.info_hashes()), transfer.digest)
            transfer.twins[membership.ca] = handle

    def drop(self, handle: lt.torrent_handle) -> None:
        """Takes one torrent of a transfer with several out of the session."""
        self._digests.pop(wire_hash(handle.info_hashes()), None)
        self._session.remove(handle)

    def name(self, wire: WireHash, digest: Digest) -> None:
        """Records that alerts about `wire` concern this digest."""
        self._digests[wire] = digest

    def digest_of(self, wire: WireHash) -> Digest | None:
        """Returns the digest for this hash, or None for a torrent that is no longer ours."""
        return self._digests.get(wire)

    def known_digest(self, alert: lt.torrent_alert) -> Digest | None:
        """Returns the digest of a peer's alert. None if the connection named no torrent, or the
        torrent is gone."""
        digest = self.digest_of(wire_hash(alert.handle.info_hashes())) if alert.handle.is_valid() else None
        return digest if digest in self._by_digest else None

    async def remove(self, digest: Digest) -> None:
        """Returns once the transfer is out of the session and its files are closed. The files
        stay."""
        transfer = self._by_digest.pop(digest, None)
        self._awake.pop(digest, None)
        if transfer is not None:
            transfer.fail(TorrentdistError("closing", what="the transfer"))
            for twin in transfer.twins.values():
                self.drop(twin)
            if self._session.is_open and transfer.handle is not None:
                self._removals[digest] = asyncio.get_running_loop().create_future()
                self._session.remove(transfer.handle)
        if (removal := self._removals.get(digest)) is not None:
            try:
                async with asyncio.timeout(REMOVE_SECS):
                    await asyncio.shield(removal)
            except TimeoutError:
                raise TorrentdistError(
                    "timed_out", what=f"closing the files of {digest}", seconds=REMOVE_SECS
                ) from None

    def handlers(self) -> Handlers:
        return {
            lt.torrent_finished_alert: lambda alert: self._each(alert, Transfer.on_finished),
            lt.cache_flushed_alert: lambda alert: self._each(alert, Transfer.on_flushed),
            lt.hash_failed_alert: self._on_hash_failed,
            lt.file_error_alert: lambda alert: self._each(
                alert, lambda t: t.on_file_error(alert.error, alert.filename())
            ),
            lt.torrent_error_alert: lambda alert: self._each(alert, lambda t: t.on_file_error(alert.error, "")),
            lt.state_changed_alert: self._on_state_changed,
            lt.read_piece_alert: lambda alert: self._each(alert, lambda t: t.whole.on_read(alert)),
            lt.torrent_removed_alert: self._on_removed,
        }

    def on_states(self, alert: lt.state_update_alert) -> None:
        for status in alert.status:
            if (transfer := self._found(status.info_hashes)) is not None:
                transfer.on_status(status)
                self._note_movement(transfer)

    def _note_movement(self, transfer: Transfer) -> None:
        if not transfer.at_rest:
            self._awake[transfer.digest] = transfer

    def _found(self, hashes: lt.info_hash_t) -> Transfer | None:
        """Returns the transfer that a torrent is about. A twin is about none: its figures would mix
        with those of the transfer's own torrent."""
        digest = self.digest_of(wire_hash(hashes))
        transfer = None if digest is None else self._by_digest.get(digest)
        return None if transfer is None or transfer.has_twin(hashes) else transfer

    def _each(self, alert: lt.torrent_alert, act: Callable[[Transfer], None]) -> None:
        if (transfer := self._found(alert.handle.info_hashes())) is not None:
            act(transfer)

    def _on_hash_failed(self, alert: lt.hash_failed_alert) -> None:
        self._each(alert, Transfer.on_hash_failed)
        if (digest := self.digest_of(wire_hash(alert.handle.info_hashes()))) is not None:
            self._tell(HashFailed(digest=digest, piece=int(alert.piece_index)))

    def _on_state_changed(self, alert: lt.state_changed_alert) -> None:
        if alert.state not in (lt.torrent_status.finished, lt.torrent_status.seeding):
            self._each(alert, Transfer.on_left_seeding)

    def _on_removed(self, alert: lt.torrent_removed_alert) -> None:
        wire = wire_hash(alert.info_hashes)
        digest = self.digest_of(wire)
        if digest is None:
            return
        # It may have been added again, after a removal that took too long.
        if digest not in self._by_digest:
            del self._digests[wire]
        if (removal := self._removals.pop(digest, None)) is not None and not removal.done():
            removal.set_result(None)
