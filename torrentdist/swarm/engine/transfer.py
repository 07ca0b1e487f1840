"""One bundle in the engine, being fetched or seeded, with an immutable view of its progress.

Always: it counts as done only when every piece is verified and libtorrent has written everything to
the files. A failed transfer stays failed and is never written to again.
Never: publish or delete anything.
Longer than most files, because this one object handles all of libtorrent's events about a torrent.
"""

import asyncio
import contextlib
import errno
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

import libtorrent as lt
import msgspec

from torrentdist.bundle.files.durability import disk_failure
from torrentdist.bundle.metafile import Metafile
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.model.swarm_place import SwarmPlace
from torrentdist.model.wire.swarm_messages import PeerAddress
from torrentdist.model.wire.transfer_messages import TransferPhase, TransferView
from torrentdist.swarm.engine import connections
from torrentdist.swarm.engine.connections import TransferPeers
from torrentdist.swarm.engine.piece_order import PieceOrder
from torrentdist.swarm.engine.session_settings import usable_rate
from torrentdist.swarm.engine.traffic import Endpoint, SeenPeer, TransferPace
from torrentdist.swarm.engine.whole_pieces import WholePieces

PART_SECS: Final = 5.0
"""How long complete peers stay connected to each other."""
_CHECKING = (
    lt.torrent_status.checking_files,
    lt.torrent_status.checking_resume_data,
)


class Owner(Protocol):
    """What a transfer needs from its engine."""

    def is_own(self, endpoint: Endpoint) -> bool:
        """Whether the engine itself listens there."""

    def refresh(self) -> None:
        """Asks libtorrent for news, unless the last news is recent."""


class Transfer:
    """Created by the engine. Other code reads its state, adds peers, and waits for its end."""

    def __init__(self, meta: Metafile, save_dir: Path, owner: Owner, *, phase: TransferPhase) -> None:
        self.meta = meta.for_swarm
        self.save_dir = save_dir
        self._owner = owner
        self.ca = ""
        """The CA that all peers of this transfer have, in a swarm with TLS."""
        self.twins: dict[str, lt.torrent_handle] = {}
        """Torrents of the same content under other CAs, by CA."""
        self._handle: lt.torrent_handle | None = None
        self._peers = TransferPeers(owner.is_own)
        self._pieces = PieceOrder(meta.piece_length)
        self.whole = WholePieces()
        self._settled = asyncio.Event()
        self._has_peers = asyncio.Event()
        self._error: TorrentdistError | None = None
        self._local: int | None = None
        """Bytes that were on disk before. None while libtorrent still checks."""
        self._only_seeds_since: float | None = None
        self._limit = 0
        self._flushes = 0
        """Number of pending answers to flush_cache."""
        self._finishing: set[str] | None = None
        """Pending answers between the last piece and the end. None while pieces are missing."""
        seeding = phase is TransferPhase.SEEDING
        self._view = TransferView(
            digest=meta.digest, phase=phase, size=meta.size, done=meta.size if seeding else 0, eta=None
        )
        if seeding:
            self._local = meta.size
            self._count_sources()
            self._settled.set()

    # public interface

    @property
    def digest(self) -> Digest:
        return self.meta.digest

    @property
    def phase(self) -> TransferPhase:
        return self._view.phase

    @property
    def active(self) -> bool:
        return self.phase in (TransferPhase.CHECKING, TransferPhase.FETCHING)

    @property
    def at_rest(self) -> bool:
        """Whether nothing is transferred, and no connection is to be closed."""
        return not (self.active or self.all_complete or self._view.rate or self._view.upload_rate)

    def view(self) -> TransferView:
        """Returns the last view, at most about a second old while a fetch runs, and renews it in
        the background."""
        self._owner.refresh()
        return self._view

    async def wait_done(self) -> None:
        """Returns once every piece is verified and in the files, so that a sync makes it durable.

        Raises the transfer's error if that will not happen.
        """
        await self._settled.wait()
        if self._error is not None:
            raise TorrentdistError(self._error.code, **self._error.fields)

    def add_peers(self, peers: Sequence[PeerAddress]) -> None:
        """Dials members of the swarm that are not connected. Add them again after a failure, as
        often as you like."""
        self.dial(self._peers.learn(peers))
        if self._peers.known():
            self._has_peers.set()
        self._count_sources()

    def origins(self) -> dict[Endpoint, int]:
        """Returns the payload bytes by the peer that sent them."""
        return self._peers.origins()

    def limit(self, rate: int) -> None:
        """Limits reception to `rate` bytes per second, on private networks too. 0 removes the
        limit."""
        changed, self._limit = rate != self._limit, rate
        if changed:
            self.set_rate(rate)

    @property
    def receive_limit(self) -> int:
        """The bytes per second that may be received; 0: no limit."""
        return self._limit

    def set_rate(self, rate: int) -> None:
        """Changes what libtorrent may receive, because a part of the limit is used beside it."""
        if self._handle is not None:
            with contextlib.suppress(RuntimeError):  # The torrent may have left the session.
                self._handle.set_download_limit(usable_rate(rate))

    def run_from(self, piece: int, most: int) -> int:
        """Returns the number of consecutive verified pieces from this one on, at most `most`. They
        may not be in the files yet."""
        seeding = self.phase is TransferPhase.SEEDING
        return most if seeding else self._pieces.run_from(piece, most, self._handle)

    def have(self) -> Sequence[bool]:
        """Returns whether each piece is verified, as known a moment ago. Some may not be in the
        files yet. Empty: it is not known."""
        return self._pieces.have(self._handle)

    def hurry(self, piece: int) -> None:
        """Fetches this piece before all others, because a reader on this host waits for it."""
        self._pieces.hurry(piece, self._handle if self.active else None)

    # conductor's plan

    @property
    def placed(self) -> bool:
        return self._pieces.place is not None

    @property
    def has_share(self) -> bool:
        place = self._pieces.place
        return place is not None and place.has_share

    @property
    def conducted(self) -> bool:
        """Whether its priorities follow the plan, or still have to be reset."""
        return self.active and (self.placed or bool(self._pieces.priorities))

    @property
    def priorities(self) -> list[int]:
        """The piece priorities last given to libtorrent."""
        return self._pieces.priorities

    def holders_to_leave(self) -> set[str]:
        """Returns the hosts of the holders that this transfer should not be connected to."""
        return self._peers.holders() if self.active and self._pieces.is_apart else set()

    def take_place(self, place: SwarmPlace | None) -> None:
        """Follows the conductor's plan from now on. None means that there is no other receiver to
        share with."""
        if self._pieces.take_place(place):
            self.conduct()

    def conduct(self) -> None:
        """Sets the priorities according to what the peers have now. Waits briefly for the network
        thread."""
        if self.conducted and self._handle is not None and self._finishing is None:
            self._pieces.arrange(self._handle)

    # interface for the engine

    @property
    def handle(self) -> lt.torrent_handle | None:
        return self._handle

    def has_twin(self, hashes: lt.info_hash_t) -> bool:
        """Whether these are the hashes of a torrent under another CA."""
        return bool(self.twins) and hashes in [twin.info_hashes() for twin in self.twins.values()]

    def take_twin(self, ca: str) -> None:
        """Makes the torrent under another CA the transfer's own."""
        self.ca, self._handle = ca, self.twins.pop(ca)

    def endpoints(self) -> list[Endpoint]:
        """Returns where the known peers listen for this transfer."""
        return self._peers.endpoints(tls=bool(self.ca))

    async def wait_peers(self) -> None:
        """Returns once the directory has named a peer, or the transfer has ended."""
        await self._has_peers.wait()

    def known_peers(self) -> list[PeerAddress]:
        return self._peers.known()

    def added(self, handle: lt.torrent_handle, *, local: int | None) -> None:
        """Records that the transfer is in the session. `local` bytes were here before, if that is
        known."""
        self._handle = handle
        self._local = local if self._local is None else self._local
        if self.active and self._local:
            self._view = self._changed(done=self._local)
            self._count_sources()
        if self._limit:
            handle.set_download_limit(self._limit)
        self.conduct()

    def dial(self, peers: Iterable[PeerAddress] | None = None) -> None:
        """Connects to those of these known peers that the transfer needs. None: to all of them."""
        seeding = self.phase is TransferPhase.SEEDING
        leaving = self.holders_to_leave()
        chosen = [peer for peer in (self.known_peers() if peers is None else peers) if peer.host not in leaving]
        wanted = self._peers.worth_dialling(chosen, seeding=seeding, tls=bool(self.ca))
        if wanted and self.phase is not TransferPhase.FAILED and self._handle is not None:
            connections.dial(self._handle, wanted)

    def connect_again(self, endpoints: Iterable[Endpoint]) -> None:
        """Connects to peers that were connected, whether or not the directory has named them."""
        if self._handle is not None:
            connections.dial(self._handle, self._peers.dialled(endpoints, tls=bool(self.ca)))

    def pace(self) -> TransferPace:
        view = self._view
        left = view.size - view.done if self.active or self.placed else view.size
        return TransferPace(rate=max(view.rate, view.upload_rate), peers=view.peers, left=left)

    def seen_peers(self) -> list[SeenPeer]:
        """Returns the open connections. Call it in a thread: it waits for libtorrent's network
        thread."""
        return connections.seen_peers(self._handle)

    def count_peers(self, seen: Iterable[SeenPeer]) -> None:
        self._peers.record(seen)
        self._count_sources()

    def save(self) -> None:
        """Writes what has arrived to the files, so that a kill -9 loses little of it.

        libtorrent alone keeps up to max_queued_disk_bytes in memory indefinitely.
        """
        if self.active and self._finishing is None and self._flushes == 0 and self._handle is not None:
            self._flush(self._handle)

    @property
    def all_complete(self) -> bool:
        """Whether this transfer and all of its peers are complete."""
        return self._only_seeds_since is not None

    def disconnect_complete_peers(self) -> None:
        """Disconnects peers that have long been complete. Otherwise every host would keep a
        connection per bundle."""
        if self._only_seeds_since is None or time.monotonic() - self._only_seeds_since < PART_SECS:
            return
        with contextlib.suppress(RuntimeError):  # The torrent may have left the session.
            if self._handle is not None and (status := self._handle.status(0)).num_peers == status.num_seeds:
                # libtorrent has no other way to disconnect a peer.
                self._handle.pause()
                self._handle.resume()
                self._only_seeds_since = None

    def fail(self, error: TorrentdistError) -> None:
        """Fails the transfer permanently with this error. Only the first error counts."""
        if self.phase is TransferPhase.FAILED:
            return
        self._error, self._only_seeds_since = error, None
        self._view = self._changed(
            phase=TransferPhase.FAILED, error=error.message, rate=0.0, upload_rate=0.0, eta=None, peers=0
        )
        if self._handle is not None:
            with contextlib.suppress(RuntimeError):
                self._handle.pause()
        self._settled.set()
        self._has_peers.set()

    # libtorrent's events

    def on_status(self, status: lt.torrent_status) -> None:
        if self.phase is TransferPhase.FAILED:
            return
        done = min(status.total_wanted_done, self.meta.size)
        checking = status.state in _CHECKING
        if self._local is None and not checking:
            self._local = max(0, done - status.total_payload_download)
        if self._finishing is not None:
            # The answer may predate the last piece. If it never reports all pieces, the transfer
            # ends by its deadline: libtorrent considers a torrent with missing pieces finished if
            # none of them has a priority.
            if status.num_pieces >= self.meta.num_pieces:
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
        if not (self.phase is TransferPhase.SEEDING and 0 < status.num_peers == status.num_seeds):
            self._only_seeds_since = None
        elif self._only_seeds_since is None:
            self._only_seeds_since = time.monotonic()
        self._count_sources()

    def on_finished(self) -> None:
        """Handles the last wanted piece: flushes libtorrent's cache to the files, and reads the
        final counters.

        It is called again after pieces that had no priority before.
        """
        if not self.active or self._handle is None or (self._finishing is not None and "status" not in self._finishing):
            return
        self._finishing = {"flush", "status"}
        self.count_peers(self.seen_peers())
        self._handle.post_status(0)
        self._flush(self._handle)

    def on_flushed(self) -> None:
        """Handles an answer to flush_cache. libtorrent also flushes by itself after the last piece,
        so there may be one more."""
        self._flushes = max(0, self._flushes - 1)
        if self._flushes == 0:
            self._await_less("flush")

    def on_hash_failed(self) -> None:
        self._view = self._changed(hash_failures=self._view.hash_failures + 1)

    def on_left_seeding(self) -> None:
        """Fails the transfer: libtorrent found that complete files are not complete any more."""
        if self.phase is TransferPhase.SEEDING:
            self.fail(TorrentdistError("corrupt", path=str(self.save_dir), detail="its files were changed or removed"))

    def on_file_error(self, code: lt.error_code, path: str) -> None:
        if code.category().name() in ("system", "generic"):
            needed = self.meta.size - self._view.done
            self.fail(disk_failure(OSError(code.value(), code.message()), Path(path or self.save_dir), needed))
        else:
            self.fail(disk_failure(OSError(errno.EIO, code.message()), Path(path or self.save_dir)))

    def _flush(self, handle: lt.torrent_handle) -> None:
        self._flushes += 1
        handle.flush_cache()

    def _await_less(self, what: str) -> None:
        if self._finishing is None or not self.active:
            return
        self._finishing.discard(what)
        if not self._finishing:
            self._view = self._changed(phase=TransferPhase.SEEDING, done=self.meta.size, rate=0.0, eta=None)
            self._count_sources()
            self._settled.set()

    def _count_sources(self) -> None:
        put_in = self.whole.received
        sources = self._peers.sources(here=self._view.done, local=self._local or 0, put_in=put_in)
        self._view = self._changed(sources=sources)

    def _changed(self, **fields: object) -> TransferView:
        return msgspec.structs.replace(self._view, **fields)
