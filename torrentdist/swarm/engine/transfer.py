"""One bundle in the engine: fetched or seeded, with an immutable picture of how far it is.

Always holds: it counts as done only when every piece is verified and libtorrent has written all of it to the files;
once failed it stays failed and is never written to again. Must not do: publish, or delete anything.
"""

from __future__ import annotations

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
from torrentdist.swarm.engine.address_filter import canonical_address
from torrentdist.swarm.engine.byte_sources import Endpoint, SeenPeer, SourceLedger
from torrentdist.swarm.engine.request_limits import TransferPace
from torrentdist.swarm.engine.session_settings import port_of_user_agent
from torrentdist.swarm.plan.conductor import OWN, Conductor, PlanPlace, SwarmView

PART_SECS: Final = 5.0
LOOK_SECS: Final = 0.1
_CHECKING = (
    lt.torrent_status.checking_files,
    lt.torrent_status.checking_resume_data,
)


class Owner(Protocol):
    """What a transfer wants of its engine."""

    def is_own(self, endpoint: Endpoint) -> bool: ...

    def refresh(self) -> None:
        """Ask libtorrent for news, if the last are old."""


class Transfer:
    def __init__(self, meta: Metafile, save_dir: Path, owner: Owner, *, phase: TransferPhase) -> None:
        self.meta = meta
        self.save_dir = save_dir
        self._owner = owner
        self._handle: lt.torrent_handle | None = None
        self._ledger = SourceLedger()
        self._peers: dict[Endpoint, PeerAddress] = {}
        self._settled = asyncio.Event()
        self._error: TorrentdistError | None = None
        self._local: int | None = None
        self._only_seeds_since: float | None = None
        self._limit = 0
        self._flushes = 0
        """How many answers to flush_cache are still to come."""
        self._conductor = Conductor()
        self._priorities: list[int] = []
        self._hurried: set[int] = set()
        self._have: list[bool] = []
        """Which pieces were there when it looked last."""
        self._looked_at = float("-inf")
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

    @property
    def at_rest(self) -> bool:
        """True if nothing is fetched or sent and no connection is to be closed."""
        return not (self.active or self.wants_to_part or self._view.rate or self._view.upload_rate)

    def view(self) -> TransferView:
        """The last picture; asking for it renews it. While something is fetched it is hardly older than a second."""
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
        self.dial([(peer.host, peer.port) for peer in peers])
        self._count_sources()

    def origins(self) -> dict[Endpoint, int]:
        """Bytes by who sent them."""
        return self._ledger.origins()

    def take_place(self, place: SwarmPlace | None) -> None:
        """The conductor's plan for this receiver; None: there is nobody to share with."""
        before = self._conductor.place
        self._conductor.place = PlanPlace(place.number, place.receivers) if place else None
        if self._conductor.place != before:
            self.conduct()

    @property
    def placed(self) -> bool:
        return self._conductor.place is not None

    @property
    def has_share(self) -> bool:
        return self._conductor.place is not None and self._conductor.place.has_share

    # What the engine calls.

    @property
    def conducted(self) -> bool:
        return self.active and (self._conductor.place is not None or bool(self._priorities))

    def conduct(self) -> None:
        """Look at what the others have, and set the priorities by it. Waits a moment for the network thread."""
        if not self.conducted or self._handle is None or self._finishing is not None:
            return
        with contextlib.suppress(RuntimeError):  # It may have left the session.
            status = self._handle.status(lt.torrent_handle.query_pieces)
            have = status.pieces  # a new list each time
            self._see(have)
            copies = self._handle.piece_availability()
            if len(copies) != len(have) or not copies:
                return
            sight = SwarmView(have, copies, status.num_seeds, self.meta.piece_length, status.total_payload_download)
            wanted = self._conductor.priorities(sight, time.monotonic())
            for piece in self._hurried:
                wanted[piece] = OWN
            if wanted != self._priorities:
                self._priorities = wanted
                self._handle.prioritize_pieces(wanted)

    @property
    def handle(self) -> lt.torrent_handle | None:
        return self._handle

    def endpoints(self) -> list[Endpoint]:
        return list(self._peers)

    def added(self, handle: lt.torrent_handle, *, local: int | None) -> None:
        """It is in the session; `local` bytes of it were there before, if that is known."""
        self._handle = handle
        self._local = local if self._local is None else self._local
        if self._limit:
            handle.set_download_limit(self._limit)

    def limit(self, rate: int) -> None:
        """Receive at most so many bytes per second, 0: as many as the engine may. Holds on private networks too."""
        changed, self._limit = rate != self._limit, rate
        if changed and self._handle is not None:
            with contextlib.suppress(RuntimeError):  # It may have left the session.
                self._handle.set_download_limit(rate)

    def dial(self, endpoints: Iterable[Endpoint]) -> None:
        seeding = self.phase is TransferPhase.SEEDING
        known = (self._peers[endpoint] for endpoint in endpoints if endpoint in self._peers)
        wanted = {(peer.host, peer.port) for peer in known if not (seeding and peer.complete)}
        if self._handle is None or self.phase is TransferPhase.FAILED or not wanted:
            return
        self.meet(wanted)

    def meet(self, endpoints: Iterable[Endpoint]) -> None:
        """Connect to these, whoever named them."""
        if (handle := self._handle) is None:
            return
        for endpoint in endpoints:
            # Who is connected is not dialled twice: libtorrent knows the listening port of each of its peers.
            # A peer that refused three times is never dialled again, whatever max_failcount says. Naming the tracker
            # as the source takes one failure off.
            with contextlib.suppress(RuntimeError):
                handle.connect_peer(endpoint, int(lt.peer_info.tracker), 0)

    def pace(self) -> TransferPace:
        view = self._view
        left = view.size - view.done if self.active or self.placed else view.size
        return TransferPace(rate=max(view.rate, view.upload_rate), peers=view.peers, left=left)

    def on_status(self, status: lt.torrent_status) -> None:
        if self.phase is TransferPhase.FAILED:
            return
        done = min(status.total_wanted_done, self.meta.size)
        checking = status.state in _CHECKING
        if self._local is None and not checking:
            self._local = max(0, done - status.total_payload_download)
        if self._finishing is not None:
            # It may have been asked for before the last piece came. One that never says so leaves the transfer to its
            # deadline: libtorrent calls finished what has holes, if nobody wants them.
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

    def seen_peers(self) -> list[SeenPeer]:
        """Who is connected and what each has sent, from any thread. Waits for libtorrent's network thread, which may
        be busy for a while; the alert with the same news is of no use in Python."""
        with contextlib.suppress(RuntimeError):  # It may have left the session.
            return _seen_peers(self._handle) if self._handle is not None else []
        return []

    def count_peers(self, seen: Iterable[SeenPeer]) -> None:
        self._ledger.record(seen)
        self._count_sources()

    def on_finished(self) -> None:
        """Every wanted piece is verified. What is in libtorrent's cache goes to the files, and the last counters are
        read. It may come again after pieces that nobody wanted before."""
        if not self.active or self._handle is None or (self._finishing is not None and "status" not in self._finishing):
            return
        self._finishing = {"flush", "status"}
        self.count_peers(self.seen_peers())
        self._handle.post_status(0)
        self._flush(self._handle)

    def save(self) -> None:
        """Have what arrived written to the files, so that a kill -9 loses little of it. libtorrent keeps up to
        max_queued_disk_bytes in memory for as long as it likes."""
        if self.active and self._finishing is None and self._flushes == 0 and self._handle is not None:
            self._flush(self._handle)

    def run_from(self, piece: int, most: int) -> int:
        """How many pieces from this one on are verified, `most` at most; they need not be in the files yet. It may
        miss those of the last moment: asking libtorrent for each would hold up whoever asks."""
        if self.phase is TransferPhase.SEEDING:
            return most
        if time.monotonic() - self._looked_at > LOOK_SECS and self._handle is not None:
            with contextlib.suppress(RuntimeError):  # It may have left the session.
                self._see(self._handle.status(lt.torrent_handle.query_pieces).pieces)
        end = min(piece + most, len(self._have))
        return next((p for p in range(piece, end) if not self._have[p]), max(piece, end)) - piece

    def _see(self, have: list[bool]) -> None:
        self._have, self._looked_at = have, time.monotonic()

    def hurry(self, piece: int) -> None:
        """Somebody on this host waits for this piece: before all others."""
        self._hurried.add(piece)
        with contextlib.suppress(RuntimeError):
            if self._handle is not None and self.active:
                self._handle.set_piece_deadline(piece, 0)

    def _flush(self, handle: lt.torrent_handle) -> None:
        self._flushes += 1
        handle.flush_cache()

    def on_flushed(self) -> None:
        """libtorrent flushes once by itself too, when the last piece is there; then one answer more comes."""
        self._flushes = max(0, self._flushes - 1)
        if self._flushes == 0:
            self._await_less("flush")

    @property
    def wants_to_part(self) -> bool:
        return self._only_seeds_since is not None

    def part(self) -> None:
        """Part from peers that have long been as complete as we are: connections would only grow, with every bundle
        times every host."""
        if self._only_seeds_since is None or time.monotonic() - self._only_seeds_since < PART_SECS:
            return
        with contextlib.suppress(RuntimeError):  # It may have left the session.
            if self._handle is not None and (status := self._handle.status(0)).num_peers == status.num_seeds:
                # There is no other way to disconnect a peer.
                self._handle.pause()
                self._handle.resume()
                self._only_seeds_since = None

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
        self._error, self._only_seeds_since = error, None
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


def _seen_peers(handle: lt.torrent_handle) -> list[SeenPeer]:
    return [
        SeenPeer(_plain(peer.ip), port_of_user_agent(peer.client), peer.total_download, peer.total_upload)
        for peer in handle.get_peer_info()
        if not peer.flags & (lt.peer_info.connecting | lt.peer_info.handshake)
    ]


def _plain(endpoint: tuple[str, int]) -> Endpoint:
    """An IPv4 address as such, even if it came over an IPv6 socket."""
    host, port = endpoint
    return (canonical_address(host) or host, port)
