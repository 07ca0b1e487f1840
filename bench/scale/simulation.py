"""Simulates a broadcast on a virtual clock: up to 100,000 receivers that decide with the product's
code.

Time passes in ticks. In each tick, every link carries a number of pieces each way. A receiver has
one piece under way from each peer that it knows: the piece of the highest priority, then the
rarest, as libtorrent chooses. Peers serve requests in the order in which they came. What they send
waits in the queue of the receiver's link, which holds 100 ms, as the lab's links do. Receivers
announce when a master tells them to, and look at their peers' pieces as often as the engine does.
In a swarm with several zones, receivers know those of their zone, and fetch flows from others.

Never: decide anything that conductor.py, crowd.py or neighbours.py decide.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from torrentdist.model.ids import PeerId
from torrentdist.swarm.directory.directory_values import Periods
from torrentdist.swarm.plan.border import feeders, flows_of, pieces_of, source_of, zone_of
from torrentdist.swarm.plan.conductor import OWN, Conductor, Progress, SwarmView, look_secs
from torrentdist.swarm.plan.request_window import BLOCK
from torrentdist.swarm.plan.zoned_crowds import NOWHERE, ZonedCrowds

NEVER = 1 << 60
QUEUE_SECS = 0.1
"""What the queue of a link holds."""
_ONLY = [bytes(b"01"[byte == priority] for byte in range(256)) for priority in range(8)]
"""For each priority, a table that turns a string of priorities into a string of binary digits."""
Rank = tuple[int, ...]
"""Sets of pieces as bits of integers, the most wanted first."""


@dataclass(eq=False)
class Receiver:
    id: PeerId
    joins: int = 0
    dies: int = NEVER
    every: int = 1
    """Number of ticks in which its link carries one piece each way."""
    held_up: int = 1
    """Least number of ticks between two pieces from the holders: connections do not share a link
    evenly."""
    conductor: Conductor = field(default_factory=Conductor)
    done_at: int | None = None
    got_at: int = 0
    waited: int = 0
    """The longest time in ticks that it received nothing before it was complete."""
    have: int = 0
    shown: int = 0
    """Pieces that the others know it has. News of a piece waits behind what it sends."""
    news: int = 0
    shown_at: int = 0
    zone: str = NOWHERE
    flows: dict[int, int] = field(default_factory=dict)
    """The pieces of each flow that it fetches from other zones."""
    outside: int = 0
    """Pieces that came from other zones."""
    elsewhere: int = 0
    """Pieces that came from other places: zones or racks."""
    asked: int = 0
    """Pieces under way."""
    arriving: deque[tuple[int, int]] = field(default_factory=deque)
    """Pieces in the queue of its link, each with its line as in `busy`."""
    busy: set[int] = field(default_factory=set)
    """Peers from which it has a piece under way, and flows, as negative numbers below those of the
    holders."""
    knows: dict[int, None] = field(default_factory=dict)
    """Indexes of the receivers that it is connected to."""
    holders: bool = True
    wanted: Rank = ()
    looks_at: int = 0
    announces_at: int = 0

    def there(self, tick: int) -> bool:
        return self.joins <= tick < self.dies


@dataclass
class World:
    pieces: int
    receivers: list[Receiver]
    holders: int = 1
    holders_leave: int = NEVER
    uplink: int = 1
    """Pieces per tick."""
    holder_uplink: int = 0
    """Pieces per tick of a holder; 0: as the others."""
    holder_every: int = 0
    """Ticks per piece of a holder, if it needs more than one. All pieces that it was asked for then
    arrive together, because it sends a little of each in turn."""
    seed: int = 0
    tick_secs: float = 0.125
    piece_length: int = 2 * BLOCK
    periods: Periods = field(default_factory=Periods)
    holder_zone: str = NOWHERE
    expected: bool = False
    """Whether all receivers have their places from the start, as those of `bundle distribute`
    do."""
    waits: bool = True
    """Whether small messages wait behind pieces on the same link. False to look at the plan
    alone."""
    sent_by_holders: Counter[int] = field(default_factory=Counter)
    announces: Counter[int] = field(default_factory=Counter)
    """Announces that each master receives, by second."""
    tick: int = 0

    def __post_init__(self) -> None:
        self._queue = self.uplink * (1 + round(QUEUE_SECS / self.tick_secs))
        """Pieces that the queue of a link holds."""
        self._crowds = ZonedCrowds()
        if self.expected:
            self._crowds.of(NOWHERE).expect([receiver.id for receiver in self.receivers], lambda _: False)
        self._sources: dict[str, list[int]] = {}
        self._chance = random.Random(self.seed)
        self._full = (1 << self.pieces) - 1
        self._index = {receiver.id: index for index, receiver in enumerate(self.receivers)}
        self._arriving = sorted(range(len(self.receivers)), key=lambda index: -self.receivers[index].joins)
        self._alive: dict[int, Receiver] = {}
        self._lacking: dict[int, Receiver] = {}
        self._queues: dict[int, deque[tuple[int, int, int]]] = {}
        """Requests by the peer that was asked: who asks, for which piece, and on which line, as in
        Receiver.busy. Holders have negative numbers."""
        self._sending: Counter[int] = Counter()
        """Ticks that each holder has spent on the pieces that it was asked for."""
        self._travelling: dict[int, list[tuple[int, int, int, int]]] = {}
        """Requests under way by time of arrival: who is asked, who asks, for which piece, and on
        which line."""
        for receiver in self.receivers:
            receiver.announces_at = receiver.joins

    def run(self, limit: int) -> bool:
        """Returns whether every live receiver is complete before the limit."""
        while self.tick < limit:
            self._come_and_go()
            if not self._lacking and not self._arriving:
                return True
            self._announce()
            self._tell()
            self._ask()
            self._deliver()
            self.tick += 1
        return False

    def _come_and_go(self) -> None:
        while self._arriving and self.receivers[self._arriving[-1]].joins <= self.tick:
            index = self._arriving.pop()
            self._alive[index] = self._lacking[index] = self.receivers[index]
            self._crowds.come(self.receivers[index].id, self.receivers[index].zone, self.tick * self.tick_secs)
        for index in [index for index, receiver in self._alive.items() if receiver.dies <= self.tick]:
            del self._alive[index]
            if self._lacking.pop(index, None) is not None:
                self._crowds.go(self.receivers[index].id)
            self._forget(index)
        if self.tick >= self.holders_leave:
            for holder in range(-self.holders, 0):
                self._forget(holder)

    def _forget(self, source: int) -> None:
        """Removes a dead peer. Its requests have to go to others."""
        for index, piece, line in self._queues.pop(source, ()):
            self._take_back(line, index, piece)

    def _announce(self) -> None:
        """Lets the hosts that are due announce their progress, and gives them their place and
        neighbours."""
        now = self.tick * self.tick_secs
        period = self.periods.fetching(len(self._lacking))
        for index, receiver in self._lacking.items():
            if receiver.announces_at > self.tick:
                continue
            receiver.announces_at = self.tick + max(1, round(period / self.tick_secs))
            self.announces[int(now)] += 1
            crowd = self._crowds.of(receiver.zone)
            crowd.judge(self._progress, now)
            receiver.conductor.place = place = crowd.place(receiver.id)
            receiver.holders = crowd.needs_holders(receiver.id, receiver.have.bit_count(), now)
            if self._sources_for(receiver.zone):
                receiver.holders = False
                numbers = flows_of(place.number, place.receivers) if place else flows_of(0, 1)
                receiver.flows = {flow: sum(1 << piece for piece in pieces_of(flow, self.pieces)) for flow in numbers}
            near = crowd.neighbours(receiver.id, lambda peer: self._index[peer] in self._lacking, now)
            for other in self._lacking if near is None else (self._index[peer] for peer in near):
                if other != index and other in self._alive and self.receivers[other].zone == receiver.zone:
                    receiver.knows[other] = self.receivers[other].knows[index] = None

    def _sources_for(self, place: str) -> list[int]:
        """Returns the receivers from which a place fetches flows, as the masters' first plan says;
        none: it fetches from the holders."""
        receivers = self._crowds.receivers()
        if len(receivers) > 1 and place not in self._sources:
            giving = feeders(place, receivers, {}, {self.holder_zone: self.holders})
            self._sources[place] = [index for index, one in enumerate(self.receivers) if one.zone in giving]
        return self._sources.get(place, [])

    def _progress(self, peer: PeerId) -> Progress | None:
        receiver = self._lacking.get(self._index[peer])
        if receiver is None:
            return None
        return Progress(receiver.have.bit_count() * self.piece_length, self.pieces * self.piece_length)

    def _waits(self, index: int) -> int:
        """Returns the ticks for which a small message to one peer waits behind what is sent to
        all."""
        return min(len(self._queues.get(index, ())), self._queue) // self.uplink if self.waits else 0

    def _tell(self) -> None:
        """Delivers the requests that arrive now."""
        for index, receiver in self._alive.items():
            if receiver.shown_at <= self.tick and receiver.shown != receiver.have:
                receiver.shown, receiver.news = receiver.news, receiver.have
                receiver.shown_at = self.tick + self._waits(index)
        for source, index, piece, line in self._travelling.pop(self.tick, ()):
            if source < 0 or source in self._alive:
                self._queues.setdefault(source, deque()).append((index, piece, line))
            else:
                self._take_back(line, index, piece)

    def _take_back(self, line: int, index: int, piece: int) -> None:
        self.receivers[index].asked &= ~piece
        self.receivers[index].busy.discard(line)

    def _ask(self) -> None:
        seeds = self.holders if self.tick < self.holders_leave else 0
        for index, receiver in self._lacking.items():
            known = [other for other in receiver.knows if self.receivers[other].shown and other in self._alive]
            holders = range(-seeds, 0) if receiver.holders and not receiver.conductor.is_apart else ()
            if receiver.looks_at <= self.tick:
                here, place = receiver.have.bit_count(), receiver.conductor.place
                pace = here / max(self.tick_secs, self.tick * self.tick_secs)
                has_share = place is not None and place.has_share
                secs = look_secs(self.pieces, self.pieces - here, pace, has_share=has_share)
                receiver.looks_at = self.tick + max(1, round(secs / self.tick_secs))
                self._look(receiver, known, len(holders))
                if receiver.conductor.is_apart:
                    self._leave_holders(index)
                    holders = ()
            turn = self._chance.randrange(len(known) or 1)
            for source in (*holders, *known[turn:], *known[:turn]):
                if source in receiver.busy:
                    continue
                missing = self._full & ~receiver.have
                left = missing & ~receiver.asked or missing  # the last pieces are requested from every peer
                there = left & (self._full if source < 0 else self.receivers[source].shown)
                if there and (piece := self._pick(receiver.wanted, there)):
                    self._request(index, receiver, source, piece, source)
            if receiver.flows:
                self._ask_abroad(index, receiver)

    def _leave_holders(self, index: int) -> None:
        """Takes back what a receiver has requested from the holders."""
        for holder in range(-self.holders, 0):
            queue = self._queues.get(holder, deque())
            for asking, piece, line in [request for request in queue if request[0] == index]:
                queue.remove((asking, piece, line))
                self._take_back(line, index, piece)

    def _ask_abroad(self, index: int, receiver: Receiver) -> None:
        """Asks for the next piece of each flow."""
        for flow, pieces in receiver.flows.items():
            line = -self.holders - 1 - flow
            source = source_of(flow, receiver.zone, self._sources[receiver.zone])
            if line in receiver.busy or source is None or source not in self._alive:
                continue
            if there := pieces & self.receivers[source].shown & ~receiver.have & ~receiver.asked:
                self._request(index, receiver, source, there & -there, line)

    def _request(self, index: int, receiver: Receiver, source: int, piece: int, line: int) -> None:
        receiver.asked |= piece
        receiver.busy.add(line)
        if wait := self._waits(index):
            self._travelling.setdefault(self.tick + wait, []).append((source, index, piece, line))
        else:
            self._queues.setdefault(source, deque()).append((index, piece, line))

    def _look(self, receiver: Receiver, known: Iterable[int], seeds: int) -> None:
        """Sets a receiver's priorities from the pieces of its present connections."""
        ones = twos = many = full = 0  # a binary adder for all pieces at once
        for other in known:
            have = self.receivers[other].shown
            if have == self._full:
                full += 1
                continue
            pair = ones & have
            ones ^= have
            many |= twos & pair
            twos ^= pair
        seeds += full
        few = self._full & ~many
        copies = [few & ~(ones | twos), few & ones & ~twos, few & twos & ~ones, few & ones & twos, many]
        told = [seeds + 1] * self.pieces
        for piece in _bits(copies[0]):
            told[piece] = seeds
        there = list(map("1".__eq__, reversed(f"{receiver.have:0{self.pieces}b}")))
        received = receiver.have.bit_count() * self.piece_length
        sight = SwarmView(there, told, seeds, self.piece_length, received)
        wanted = receiver.conductor.priorities(sight, self.tick * self.tick_secs)
        receiver.wanted = _ranks(wanted, copies, seeds)

    def _pick(self, ranks: Rank, there: int) -> int:
        """Picks a random piece of the first rank that has any."""
        if not there:
            return 0
        for rank in ranks:
            if found := rank & there:
                above = found >> (start := self._chance.randrange(self.pieces)) << start
                found = above or found
                return found & -found
        return 0

    def _deliver(self) -> None:
        for index, receiver in [*self._lacking.items()]:
            if not self.tick % receiver.every:
                self._arrive(index, receiver)
        room = {index: self._queue - len(receiver.arriving) for index, receiver in self._lacking.items()}
        for source in sorted(self._queues, key=lambda _: self._chance.random()):
            if source < 0 or not self.tick % self.receivers[source].every:
                self._serve(source, room)

    def _arrive(self, index: int, receiver: Receiver) -> None:
        """Takes from the queue of a receiver's link what it carries in one tick."""
        for _ in range(min(self.uplink, len(receiver.arriving))):
            piece, line = receiver.arriving.popleft()
            receiver.busy.discard(line)
            if not piece & receiver.have:
                self._receive(index, receiver, piece)

    def _serve(self, source: int, room: dict[int, int]) -> None:
        """Serves requests in the order in which they came, as far as links carry them."""
        queue = self._queues[source]
        waiting: list[tuple[int, int, int]] = []
        sent = 0
        most = self.uplink if source >= 0 else self._given(source)
        while queue and sent < most:
            index, piece, line = queue.popleft()
            receiver = self.receivers[index]
            if index not in room or piece & receiver.have:
                receiver.busy.discard(line)  # the receiver is gone, or has the piece from another peer
            elif room[index] and (source >= 0 or (self.tick + index) % receiver.held_up == 0):
                room[index] -= 1
                sent += 1
                receiver.arriving.append((piece, line))
                zone = self.holder_zone if source < 0 else self.receivers[source].zone
                receiver.outside += zone_of(zone) != zone_of(receiver.zone)
                receiver.elsewhere += zone != receiver.zone
                if source < 0:
                    self.sent_by_holders[piece] += 1
            else:
                waiting.append((index, piece, line))
        queue.extendleft(reversed(waiting))

    def _given(self, holder: int) -> int:
        """Returns the pieces that a holder has sent in this tick."""
        if not self.holder_every:
            return self.holder_uplink or self.uplink
        asked = len(self._queues[holder])
        self._sending[holder] += 1
        if self._sending[holder] < self.holder_every * asked:
            return 0
        self._sending[holder] = 0
        return asked

    def _receive(self, index: int, receiver: Receiver, piece: int) -> None:
        receiver.have |= piece
        receiver.asked &= ~piece
        receiver.waited = max(receiver.waited, self.tick - max(receiver.got_at, receiver.joins))
        receiver.got_at = self.tick
        if receiver.have == self._full:
            receiver.done_at = self.tick
            del self._lacking[index]
            self._crowds.go(receiver.id, complete=True)


def _ranks(wanted: list[int], copies: list[int], seeds: int) -> Rank:
    """Ranks pieces in libtorrent's order: by priority, then by the number of copies times (8 -
    priority)."""
    backwards = bytes(reversed(wanted))
    levels = {priority: int(backwards.translate(_ONLY[priority]), 2) for priority in set(wanted)}
    ranks: dict[int, int] = {}
    for priority, pieces in levels.items():
        for number, rarity in enumerate(copies):
            if found := pieces & rarity:
                key = 0 if priority == OWN else (seeds + number) * (8 - priority)
                ranks[key] = ranks.get(key, 0) | found
    return tuple(ranks[key] for key in sorted(ranks))


def _bits(pieces: int) -> Iterable[int]:
    while pieces:
        lowest = pieces & -pieces
        yield lowest.bit_length() - 1
        pieces ^= lowest


def crowd(size: int, zones: Sequence[str] = (NOWHERE,)) -> list[Receiver]:
    """Returns receivers, which are in these zones in turn."""
    return [Receiver(PeerId(f"s{number:06}"), zone=zones[number % len(zones)]) for number in range(size)]
