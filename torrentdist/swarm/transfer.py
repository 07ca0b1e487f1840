"""One bundle in the engine: fetched or seeded, with an immutable picture of how far it is.

Always holds: it counts as done only when every piece is verified and libtorrent has written all of it to the files;
once failed it stays failed and is never written to again. Must not do: publish, or delete anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import libtorrent as lt
import msgspec

from torrentdist.bundle.durable import disk_failure
from torrentdist.bundle.metafile import Metafile
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.model.views import PeerAddress, TransferPhase, TransferView
from torrentdist.swarm.access import canonical_address
from torrentdist.swarm.settings import port_of_user_agent
from torrentdist.swarm.sources import Endpoint, SeenPeer, SourceLedger

_CHECKING = (
    lt.torrent_status.checking_files,
    lt.torrent_status.checking_resume_data,
)


class Owner(Protocol):
    """What a transfer wants of its engine."""

    def is_own(self, endpoint: Endpoint) -> bool: ...

    def refresh(self) -> None:
        """Ask libtorrent for news, if the last are old."""

    def look_at_peers(self, transfer: Transfer) -> None:
        """Answered by on_peers."""


class Transfer:
    def __init__(self, meta: Metafile, save_dir: Path, owner: Owner, *, phase: TransferPhase) -> None:
        self.meta = meta
        self.save_dir = save_dir
        self._owner = owner
        self._handle: lt.torrent_handle | None = None
        self._ledger = SourceLedger()
        self._peers: dict[Endpoint, PeerAddress] = {}
        self._connected: frozenset[Endpoint] = frozenset()
        self._settled = asyncio.Event()
        self._error: TorrentdistError | None = None
        self._local: int | None = None
        self._only_seeds = False
        self._flushes = 0
        """How many answers to flush_cache are still to come."""
        self._finishing: set[str] | None = None
        """What is still awaited between the last piece and being done."""
        seeding = phase is TransferPhase.SEEDING
        self._view = TransferView(
            digest=meta.digest, phase=phase, size=meta.size, done=meta.size if seeding else 0, eta=None
        )
        if seeding:
            self._local = meta.size
            self._view = self._changed(sources=self._ledger.sources(here=meta.size, local=meta.size))
            self._settled.set()

    @property
    def digest(self) -> Digest:
        return self.meta.digest

    @property
    def phase(self) -> TransferPhase:
        return self._view.phase

    @property
    def active(self) -> bool:
        return self.phase in (TransferPhase.CHECKING, TransferPhase.FETCHING)

    def view(self) -> TransferView:
        """The last picture. While something is fetched it is at most a second old; else asking for it renews it."""
        if not self.active:
            self._owner.refresh()
        return self._view

    async def wait_done(self) -> None:
        """Every piece is verified and in the files, so that a sync makes it durable. Raises why that won't happen."""
        await self._settled.wait()
        if self._error is not None:
            raise TorrentdistError(self._error.code, **self._error.fields)

    def add_peers(self, peers: Sequence[PeerAddress]) -> None:
        """Members of the swarm, as often as anybody likes: who isn't connected is dialled, again after a failure."""
        self._ledger.learn(peers)
        for peer in peers:
            endpoint = (peer.host, peer.port)
            if canonical_address(peer.host) is not None and not self._owner.is_own(endpoint):
                self._peers[endpoint] = peer
                self._dial(peer)
        self._count_sources()

    def _dial(self, peer: PeerAddress) -> None:
        endpoint = (peer.host, peer.port)
        if self._handle is None or endpoint in self._connected or self.phase is TransferPhase.FAILED:
            return
        if peer.complete and self.phase is TransferPhase.SEEDING:
            return
        # A peer that refused three times is never dialled again, whatever max_failcount says. Naming the tracker as
        # the source takes one failure off.
        with contextlib.suppress(RuntimeError):
            self._handle.connect_peer(endpoint, int(lt.peer_info.tracker), 0)

    # What the engine calls.

    @property
    def handle(self) -> lt.torrent_handle | None:
        return self._handle

    @property
    def connected(self) -> bool:
        return self._view.peers > 0

    def endpoints(self) -> list[Endpoint]:
        return list(self._peers)

    def added(self, handle: lt.torrent_handle, *, local: int | None) -> None:
        """It is in the session; `local` bytes of it were there before, if that is known."""
        self._handle = handle
        self._local = local if self._local is None else self._local

    def dial_all(self) -> None:
        for peer in self._peers.values():
            self._dial(peer)

    def on_status(self, status: lt.torrent_status) -> None:
        if self.phase is TransferPhase.FAILED:
            return
        done = min(status.total_wanted_done, self.meta.size)
        checking = status.state in _CHECKING
        if self._local is None and not checking:
            self._local = max(0, done - status.total_payload_download)
        if self._finishing is not None:
            self._await_less("status")
        elif self.active:
            self._view = self._changed(phase=TransferPhase.CHECKING if checking else TransferPhase.FETCHING)
        left = self.meta.size - done
        rate = float(status.download_payload_rate) if left else 0.0
        self._view = self._changed(
            done=self.meta.size if self.phase is TransferPhase.SEEDING else done,
            rate=rate,
            upload_rate=float(status.upload_payload_rate),
            eta=left / rate if rate > 0 else None,
            uploaded=status.total_payload_upload,
            peers=status.num_peers,
        )
        self._only_seeds = 0 < status.num_peers == status.num_seeds
        self._count_sources()

    def on_peers(self, seen: Sequence[SeenPeer]) -> None:
        self._connected = frozenset(
            (peer.remote[0], port) for peer in seen for port in (peer.remote[1], peer.listening) if port is not None
        )
        self._ledger.record(seen)
        self._count_sources()
        self._await_less("peers")

    def on_finished(self) -> None:
        """Every piece is verified. What is in libtorrent's cache goes to the files, and the last counters are read."""
        if not self.active or self._handle is None or self._finishing is not None:
            return
        self._finishing = {"flush", "peers", "status"}
        self._owner.look_at_peers(self)
        self._handle.post_status(0)
        self._flush(self._handle)

    def save(self) -> None:
        """Have what arrived written to the files, so that a kill -9 loses little of it. libtorrent keeps up to
        max_queued_disk_bytes in memory for as long as it likes."""
        if self.active and self._finishing is None and self._flushes == 0 and self._handle is not None:
            self._flush(self._handle)

    def _flush(self, handle: lt.torrent_handle) -> None:
        self._flushes += 1
        handle.flush_cache()

    def on_flushed(self) -> None:
        """libtorrent flushes once by itself too, when the last piece is there; then one answer more comes."""
        self._flushes = max(0, self._flushes - 1)
        if self._flushes == 0:
            self._await_less("flush")

    def rest(self) -> None:
        """Part from peers that are as complete as we are; with every bundle and host, connections would only grow."""
        if self.phase is TransferPhase.SEEDING and self._only_seeds and self._handle is not None:
            self._only_seeds = False
            # There is no other way to disconnect a peer. Who wants something in this moment dials again.
            self._handle.pause()
            self._handle.resume()

    def on_hash_failed(self) -> None:
        self._view = self._changed(hash_failures=self._view.hash_failures + 1)

    def on_left_seeding(self) -> None:
        """libtorrent looked at files that were complete and they are not any more."""
        if self.phase is TransferPhase.SEEDING:
            self.fail(TorrentdistError("corrupt", path=str(self.save_dir), detail="its files were changed or removed"))

    def on_file_error(self, code: lt.error_code, path: str) -> None:
        if code.category().name() in ("system", "generic"):
            needed = self.meta.size - self._view.done
            self.fail(disk_failure(OSError(code.value(), code.message()), Path(path or self.save_dir), needed))
        else:
            self.fail(disk_failure(OSError(errno.EIO, code.message()), Path(path or self.save_dir)))

    def fail(self, error: TorrentdistError) -> None:
        if self.phase is TransferPhase.FAILED:
            return
        self._error = error
        self._view = self._changed(
            phase=TransferPhase.FAILED, error=error.message, rate=0.0, upload_rate=0.0, eta=None, peers=0
        )
        if self._handle is not None:
            with contextlib.suppress(RuntimeError):
                self._handle.pause()
        self._settled.set()

    def _await_less(self, what: str) -> None:
        if self._finishing is None or not self.active:
            return
        self._finishing.discard(what)
        if not self._finishing:
            self._view = self._changed(phase=TransferPhase.SEEDING, done=self.meta.size, rate=0.0, eta=None)
            self._count_sources()
            self._settled.set()

    def _count_sources(self) -> None:
        here, local = self._view.done, self._local or 0
        self._view = self._changed(sources=self._ledger.sources(here=here, local=min(local, here)))

    def _changed(self, **fields: object) -> TransferView:
        return msgspec.structs.replace(self._view, **fields)


def seen_peers(handle: lt.torrent_handle) -> list[SeenPeer]:
    """Who is connected. Blocks until libtorrent's network thread has time; the alert with the same is not bound."""
    return [
        SeenPeer(_plain(peer.ip), port_of_user_agent(peer.client), peer.total_download)
        for peer in handle.get_peer_info()
        if not peer.flags & (lt.peer_info.connecting | lt.peer_info.handshake)
    ]


def _plain(endpoint: tuple[str, int]) -> Endpoint:
    """An IPv4 address as such, even if it came over an IPv6 socket."""
    host, port = endpoint
    return (canonical_address(host) or host, port)
