"""A broadcast on a virtual clock: hundreds of receivers whose every decision is the product's own function.

Time goes in ticks; in each, every link carries so many pieces each way. A peer serves who got least of it first; a
receiver asks each peer for the piece of the highest priority, then the rarest, as libtorrent does. What a receiver
knows of the others is one tick old. Must not do: decide anything that conductor.py or graph.py decide.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from torrentdist.model.ids import PeerId
from torrentdist.swarm.conductor import BLOCK, Conductor, Progress, Sight, places_of
from torrentdist.swarm.graph import neighbours

TICKS_PER_SEC = 8.0
PLAN_TICKS = 8


@dataclass
class Receiver:
    id: PeerId
    joins: int = 0
    dies: int = 1 << 30
    every: int = 1
    """Its link carries a piece each way in so many ticks' turns."""
    have: set[int] = field(default_factory=set)
    conductor: Conductor = field(default_factory=Conductor)
    done_at: int | None = None
    wanted: list[int] = field(default_factory=list)

    def there(self, tick: int) -> bool:
        return self.joins <= tick < self.dies


@dataclass
class World:
    pieces: int
    receivers: list[Receiver]
    holders: int = 1
    holders_leave: int = 1 << 30
    uplink: int = 1
    """Pieces per tick."""
    seed: int = 0
    sent_by_holders: Counter[int] = field(default_factory=Counter)
    tick: int = 0
    _served: Counter[tuple[int, PeerId]] = field(default_factory=Counter)

    def run(self, limit: int) -> bool:
        """Whether everybody that lives has everything before the limit."""
        chance = random.Random(self.seed)
        while self.tick < limit:
            alive = [r for r in self.receivers if r.there(self.tick)]
            late = any(r.joins > self.tick for r in self.receivers)
            if not late and all(r.done_at is not None for r in alive):
                return True
            if self.tick % PLAN_TICKS == 0:
                self._plan(alive)
            self._step(alive, chance)
            self.tick += 1
        return False

    def _plan(self, alive: list[Receiver]) -> None:
        lacking = {r.id: Progress(len(r.have), self.pieces) for r in alive if r.done_at is None}
        places = places_of(lacking, ())
        for receiver in alive:
            receiver.conductor.place = places.get(receiver.id)

    def _step(self, alive: list[Receiver], chance: random.Random) -> None:
        seeds = self.holders if self.tick < self.holders_leave else 0
        snapshot = [frozenset(r.have) for r in alive]
        known = [neighbours(len(alive), index) for index in range(len(alive))]
        asked: dict[int, list[tuple[int, int]]] = {}
        for index, receiver in enumerate(alive):
            if receiver.done_at is None and self.tick % receiver.every == 0:
                copies = self._copies(snapshot, known[index], seeds)
                for source, piece in self._choices(receiver, copies, snapshot, known[index], seeds, chance):
                    asked.setdefault(source, []).append((index, piece))
        self._deliver(alive, asked, chance)

    def _copies(self, snapshot: list[frozenset[int]], known: list[int], seeds: int) -> list[int]:
        copies = [seeds] * self.pieces
        for other in known:
            for piece in snapshot[other]:
                copies[piece] += 1
        return copies

    def _choices(
        self,
        receiver: Receiver,
        copies: list[int],
        snapshot: list[frozenset[int]],
        known: list[int],
        seeds: int,
        chance: random.Random,
    ) -> list[tuple[int, int]]:
        """One piece of each source, none of them twice: holders are numbered below zero."""
        full = sum(len(snapshot[other]) == self.pieces for other in known)
        have = [piece in receiver.have for piece in range(self.pieces)]
        sight = Sight(have, copies, seeds + full, 2 * BLOCK)
        wanted = receiver.wanted = receiver.conductor.priorities(sight, self.tick / TICKS_PER_SEC)
        missing = [p for p in range(self.pieces) if not have[p] and wanted[p]]
        chance.shuffle(missing)
        missing.sort(key=lambda piece: copies[piece] * (8 - wanted[piece]) if wanted[piece] < 7 else 0)
        chosen: list[tuple[int, int]] = []
        taken: set[int] = set()
        for source in [*range(-seeds, 0), *known]:
            has: Callable[[int], bool] = (
                (lambda _: True) if source < 0 else (lambda p, there=snapshot[source]: p in there)  # type: ignore[misc]
            )
            piece = next((p for p in missing if p not in taken and has(p)), None)
            if piece is not None:
                taken.add(piece)
                chosen.append((source, piece))
        return chosen

    def _deliver(self, alive: list[Receiver], asked: dict[int, list[tuple[int, int]]], chance: random.Random) -> None:
        room = Counter(dict.fromkeys(range(len(alive)), self.uplink))
        for source in sorted(asked, key=lambda _: chance.random()):
            requests = asked[source]
            chance.shuffle(requests)
            requests.sort(key=lambda request, source=source: self._served[source, alive[request[0]].id])  # type: ignore[misc]
            sent = 0
            if source >= 0 and self.tick % alive[source].every:
                continue
            for index, piece in requests:
                if sent == self.uplink:
                    break
                if room[index] and piece not in alive[index].have:
                    room[index] -= 1
                    sent += 1
                    alive[index].have.add(piece)
                    self._served[source, alive[index].id] += 1
                    if source < 0:
                        self.sent_by_holders[piece] += 1
                    if len(alive[index].have) == self.pieces:
                        alive[index].done_at = self.tick


def crowd(size: int) -> list[Receiver]:
    return [Receiver(PeerId(f"s{number:04}")) for number in range(size)]
