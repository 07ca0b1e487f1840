"""Tracks which pieces of one transfer are here, and tells libtorrent which pieces to fetch first.

Always: priorities follow the conductor's plan and what the peers have now. A piece that a reader on
this host waits for precedes all others.
Never: set priority 0. libtorrent considers a torrent finished when no missing piece has a priority.
"""

import contextlib
import time
from collections.abc import Sequence
from typing import Final

import libtorrent as lt

from torrentdist.model.swarm_place import SwarmPlace
from torrentdist.swarm.plan.conductor import OWN, Conductor, PlanPlace, SwarmView

LOOK_SECS: Final = 0.1
"""How old the known pieces may be when a caller asks for them."""


class PieceOrder:
    def __init__(self, piece_length: int) -> None:
        self._piece_length = piece_length
        self._conductor = Conductor()
        self._hurried: set[int] = set()
        self._have: list[bool] = []
        """Whether each piece was here when libtorrent was last asked."""
        self._looked_at = float("-inf")
        self.priorities: list[int] = []
        """The priorities last given to libtorrent; empty if none were given."""

    @property
    def place(self) -> PlanPlace | None:
        """This receiver's place in the conductor's plan, or None if there is no other receiver to
        share with."""
        return self._conductor.place

    @property
    def is_apart(self) -> bool:
        """Whether the transfer should have no connection to holders. A reader waits for nothing."""
        return self._conductor.is_apart and not self._hurried

    def take_place(self, place: SwarmPlace | None) -> bool:
        """Adopts a place in the plan. Returns whether it differs from the previous one."""
        before = self._conductor.place
        self._conductor.place = PlanPlace(place.number, place.receivers) if place else None
        return self._conductor.place != before

    def arrange(self, handle: lt.torrent_handle) -> None:
        """Sets the priorities according to what the peers have now. Waits briefly for the network
        thread."""
        with contextlib.suppress(RuntimeError):  # The torrent may have left the session.
            status = handle.status(lt.torrent_handle.query_pieces)
            have = status.pieces  # a new list each time
            self._note(have)
            copies = handle.piece_availability() or [0] * len(have)  # libtorrent begins to count with the first peer
            if len(copies) != len(have) or not copies:
                return
            view = SwarmView(have, copies, status.num_seeds, self._piece_length, status.total_payload_download)
            wanted = self._conductor.priorities(view, time.monotonic())
            for piece in self._hurried:
                wanted[piece] = OWN
            if wanted != self.priorities:
                self.priorities = wanted
                handle.prioritize_pieces(wanted)

    def run_from(self, piece: int, most: int, handle: lt.torrent_handle | None) -> int:
        """Returns the number of consecutive verified pieces from this one on, at most `most`.

        Pieces that have just arrived may be missing, because asking libtorrent about each of them
        would delay the caller.
        """
        have = self.have(handle)
        end = min(piece + most, len(have))
        return next((p for p in range(piece, end) if not have[p]), max(piece, end)) - piece

    def have(self, handle: lt.torrent_handle | None) -> Sequence[bool]:
        """Returns whether each piece is verified, as known a moment ago. Empty: it is not known."""
        if time.monotonic() - self._looked_at > LOOK_SECS and handle is not None:
            with contextlib.suppress(RuntimeError):  # The torrent may have left the session.
                self._note(handle.status(lt.torrent_handle.query_pieces).pieces)
        return self._have

    def hurry(self, piece: int, handle: lt.torrent_handle | None) -> None:
        """Fetches this piece before all others. `handle` is None for a transfer that fetches
        nothing now."""
        self._hurried.add(piece)
        if handle is not None:
            with contextlib.suppress(RuntimeError):  # The torrent may have left the session.
                handle.set_piece_deadline(piece, 0)

    def _note(self, have: list[bool]) -> None:
        self._have, self._looked_at = have, time.monotonic()
