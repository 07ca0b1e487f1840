"""The directory against a simple model of it, under any history of announces, goodbyes, silences
and expiries."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from property_size import examples

from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmEntry
from torrentdist.swarm.directory.directory import Limits, Periods, SwarmDirectory
from torrentdist.swarm.directory.peer_addresses import ranges_of

DIGESTS = [Digest(letter * 64) for letter in "abc"]
PEERS = [PeerId(f"p{n}") for n in range(7)]
PERIODS = Periods(
    fetching_secs=1.0, unsettled_secs=1.0, seeding_secs=10.0, stock_secs=30.0, grace_secs=0.0, fetching_per_sec=1e9
)
HANDOUT = 4

ROLES = st.sampled_from(list(PeerRole))
CLAIMS = st.dictionaries(st.sampled_from(DIGESTS), st.booleans())


@dataclass
class Known:
    host: str
    port: int
    role: PeerRole
    named: dict[Digest, bool]
    alive_until: float
    claims: dict[Digest, bool] = field(default_factory=dict)


class DirectoryMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.directory = SwarmDirectory(periods=PERIODS, limits=Limits(handout=HANDOUT))
        self.known: dict[PeerId, Known] = {}
        self.recorded: dict[Digest, frozenset[PeerId]] = {}

    @rule(
        peer=st.sampled_from(PEERS),
        host=st.integers(1, 3),
        port=st.integers(0, 3),
        role=ROLES,
        claims=CLAIMS,
    )
    def announce(self, peer: PeerId, host: int, port: int, role: PeerRole, claims: dict[Digest, bool]) -> None:
        entries = [SwarmEntry(digest=digest, complete=complete) for digest, complete in claims.items()]
        request = SwarmAnnounce(peer=peer, role=role, port=port, swarms=entries)
        answer = self.directory.announce(request, source_host=f"10.0.0.{host}", now=self.now)
        alive_until = self.now + 2 * answer.interval
        self.known[peer] = Known(f"10.0.0.{host}", port, role, claims, alive_until)
        self._recall(peer)
        for digest, said in answer.swarms.items():
            self.check_handout(peer, digest, [(p.host, p.port, p.complete) for p in said.peers])

    def check_handout(self, asker: PeerId, digest: Digest, given: list[tuple[str, int, bool]]) -> None:
        me = self.known[asker]
        living = [p for p in self.known.values() if p.alive_until >= self.now and digest in p.claims and p.port]
        allowed = {(p.host, p.port, p.claims[digest]) for p in living}
        assert set(given) <= allowed
        assert (me.host, me.port) not in {(host, port) for host, port, _ in given}
        assert len({(host, port) for host, port, _ in given}) == len(given)
        if not me.claims[digest]:
            places = {(p.host, p.port) for p in living} - {(me.host, me.port)}
            assert len(given) == min(HANDOUT, len(places))

    @rule(digest=st.sampled_from(DIGESTS), holders=st.frozensets(st.sampled_from(PEERS)))
    def record(self, digest: Digest, holders: frozenset[PeerId]) -> None:
        """Records that a master holds a bundle. In the model it counts as named unless the master
        names it itself."""
        self.directory.record(digest, holders)
        self.recorded[digest] = holders
        for peer in self.known:
            self._recall(peer)

    def _recall(self, peer: PeerId) -> None:
        known = self.known[peer]
        held = [d for d, holders in self.recorded.items() if peer in holders and known.role is PeerRole.MASTER]
        known.claims = dict.fromkeys(held, True) | known.named

    @rule(peer=st.sampled_from(PEERS))
    def leave(self, peer: PeerId) -> None:
        request = SwarmAnnounce(peer=peer, role=PeerRole.CLIENT, port=0, left=True)
        self.directory.announce(request, source_host="10.0.0.1", now=self.now)
        self.known.pop(peer, None)

    @rule(seconds=st.floats(0.1, 25.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def expire(self) -> None:
        gone = set(self.directory.expire(self.now))
        assert gone == {peer for peer, known in self.known.items() if known.alive_until < self.now}
        for peer in gone:
            del self.known[peer]

    @invariant()
    def members_are_those_who_were_heard(self) -> None:
        for digest in DIGESTS:
            members = {m.peer: m.entry.complete for m in self.directory.members(digest)}
            assert members == {peer: k.claims[digest] for peer, k in self.known.items() if digest in k.claims}

    @invariant()
    def numbers_agree(self) -> None:
        stats = self.directory.statistics()
        claims = [known.claims for known in self.known.values()]
        assert stats.memberships == sum(map(len, claims))
        assert stats.swarms == len({digest for claim in claims for digest in claim})
        assert stats.fetching == sum(not all(claim.values()) for claim in claims)
        assert ranges_of({known.host for known in self.known.values()}) == self.directory.addresses((), self.now)


TestDirectory = DirectoryMachine.TestCase
TestDirectory.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)


def test_a_peer_that_has_just_become_complete_comes_as_rarely_as_any_seeder() -> None:
    """A complete peer would be called back at once for a place in a plan (found by the machine
    above)."""
    machine = DirectoryMachine()
    first, late = PEERS[:2]
    machine.announce(late, 1, 0, PeerRole.SUPERVISOR, {DIGESTS[0]: False})
    machine.announce(first, 1, 0, PeerRole.MASTER, {DIGESTS[0]: False})
    machine.announce(late, 1, 0, PeerRole.MASTER, {DIGESTS[0]: True})
    machine.wait(3.0)

    machine.expire()
