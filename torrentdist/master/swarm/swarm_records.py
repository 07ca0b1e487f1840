"""What the cluster's records say about swarms: holders, pins, and the hosts that may take part.

Always: the directory is told of each change of a bundle's holders once, when the records show it.
Costs follow changes: a bundle that did not change costs nothing.
"""

import time
from collections.abc import Callable, Set

from torrentdist.cluster.records.record_index import Follower, PerBundle, RecordIndex
from torrentdist.cluster.records.snapshot import Changes, ClusterSnapshot
from torrentdist.model.ids import BundleId, Digest, JobId, MasterId, PeerId, SupervisorId
from torrentdist.model.records import BundleState
from torrentdist.model.wire.swarm_messages import PeerRole
from torrentdist.swarm.directory.announce_binding import RegisteredHost
from torrentdist.swarm.directory.directory import SwarmDirectory, SwarmFacts
from torrentdist.swarm.directory.peer_addresses import FEW_HOSTS, RENEW_SECS_PER_HOST
from torrentdist.swarm.plan.expected_hosts import MOST_STEPS, ExpectedHosts

SETTLING_SECS = 5.0
"""Seconds for which a master still announces what its records have just begun to say.

Other masters read those records a moment later.
"""
MOST_EXPECTED = 1000
"""Digests whose expected hosts are kept. The others are looked up when somebody asks."""


class SwarmRecords:
    def __init__(self, directory: SwarmDirectory, snapshot: Callable[[], ClusterSnapshot]) -> None:
        self._directory = directory
        self.snapshot = snapshot
        self._index = RecordIndex()
        self._follower = Follower()
        self._held: PerBundle[tuple[Digest, frozenset[PeerId]]] = PerBundle(_held)
        self._recorded: dict[BundleId, Digest] = {}
        self._settling: dict[Digest, float] = {}
        """When the holders of a digest changed, for changes of the last SETTLING_SECS."""
        self._changed: set[Digest] = set()
        """Digests whose holders changed since take_changed() was called last."""
        self._facts: dict[Digest, SwarmFacts] = {}
        self._expected: dict[Digest, tuple[list[BundleId], ExpectedHosts]] = {}
        """The hosts that should get each content that was asked about lately, and its bundles."""
        self._registered: frozenset[str] = frozenset()
        self._registered_until = float("-inf")
        """When the addresses of all hosts are looked up again; infinite: none of them changed."""
        self._registered_at = float("-inf")

    def follow(self) -> ClusterSnapshot:
        """Brings the directory up to date with the newest snapshot, and returns that."""
        snapshot = self.snapshot()
        news = self._follower.news(snapshot)
        if news == Changes():
            return snapshot
        self._follow_expected(snapshot, news)
        self._facts.clear()
        if news is None or news.hosts or news.masters:
            self._registered_until = float("-inf")
        elif news.supervisors:
            pause = max(0, len(snapshot.supervisors) - FEW_HOSTS) * RENEW_SECS_PER_HOST
            self._registered_until = min(self._registered_until, self._registered_at + pause)
        if news is None or news.hosts:
            for id_ in _revoked(snapshot):
                self._directory.forget(PeerId(id_))
            self._directory.shut_out(revoked_addresses(snapshot), time.monotonic())
        held = self._held.of(snapshot)
        every = news is None or news.any_bundle
        touched = {*self._recorded, *snapshot.bundles} if news is None or every else news.bundles
        digests = {self._recorded[bundle] for bundle in touched if bundle in self._recorded}
        for bundle in touched:
            if bundle in held:
                self._recorded[bundle] = held[bundle][0]
                digests.add(held[bundle][0])
            else:
                self._recorded.pop(bundle, None)
        now = time.monotonic()
        for digest in digests:
            same = [held[bundle][1] for bundle in self._index.bundles_of(digest) if bundle in held]
            self._directory.record(digest, frozenset().union(*same))
            if not every:
                self._settling[digest] = now
        self._changed |= digests
        return snapshot

    def _follow_expected(self, snapshot: ClusterSnapshot, news: Changes | None) -> None:
        """Follows the index, and changes the lists of expected hosts where they changed."""
        hosts = frozenset() if news is None else news.assignments | news.registrations
        before = {host: self._index.kept(host) for host in hosts}
        had = {bundle: self._index.contents(bundle) for bundle in (news.bundles if news is not None else ())}
        self._index.follow(snapshot)
        if news is None or len(hosts) > MOST_STEPS:
            self._expected.clear()
            return
        for bundle, contents in had.items():
            for digest in contents - self._index.contents(bundle):  # The id has another content now.
                self._expected.pop(digest, None)
        for host in hosts:
            kept = self._index.kept(host) if host in snapshot.supervisors else frozenset()
            for digest in {snapshot.bundles[b].record.digest for b in before[host] | kept if b in snapshot.bundles}:
                if digest in self._expected:
                    bundles, expected = self._expected[digest]
                    expected.set(PeerId(host), expected=not kept.isdisjoint(bundles))

    def _expected_of(self, digest: Digest) -> ExpectedHosts:
        bundles = self._index.bundles_of(digest)
        known = self._expected.get(digest)
        if known is None or known[0] != bundles:
            # In the order of assignments, which all masters share; a newcomer comes last.
            hosts = ExpectedHosts(PeerId(host) for bundle in bundles for host in self._index.hosts_of(bundle))
            if len(self._expected) >= MOST_EXPECTED:
                del self._expected[next(iter(self._expected))]
            known = self._expected[digest] = (bundles, hosts)
        return known[1]

    def take_changed(self) -> set[Digest]:
        """Returns the digests whose holders changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def settling(self) -> Set[Digest]:
        """Returns the digests whose holders changed a moment ago by the records."""
        return self._settling.keys()

    def settle(self) -> None:
        """Forgets changes that every master has read by now."""
        now = time.monotonic()
        for digest in [d for d, at in self._settling.items() if now - at > SETTLING_SECS]:
            del self._settling[digest]

    def facts_of(self, digest: Digest) -> SwarmFacts:
        """Returns what the records say of a digest.

        In a large swarm, many peers ask for the same facts.
        """
        facts = self._facts.get(digest)
        if facts is None:
            if not (bundles := self._index.bundles_of(digest)):
                # Not kept: nobody can fill the memory with names of nothing.
                return SwarmFacts(unknown=self.snapshot().present)
            facts = self._facts[digest] = self._facts_now(digest, bundles)
        return facts

    def _facts_now(self, digest: Digest, bundles: list[BundleId]) -> SwarmFacts:
        snapshot = self.snapshot()
        records = [snapshot.bundles[bundle].record for bundle in bundles]
        return SwarmFacts(
            removed=all(record.state is BundleState.REMOVED for record in records),
            pinned=any(record.pinned for record in records),
            replicas=max(len(snapshot.holders(bundle)) for bundle in bundles),
            expected=self._expected_of(digest),
            limited=any(order.record.terms.rate for b in bundles if (order := snapshot.distributions.get(b))),
        )

    def digests_like(self, prefix: str) -> set[Digest]:
        """Returns the digests that begin so. Stock clients name a digest by its first 40 digits."""
        return self._index.digests_like(prefix)

    def names(self, digest: Digest) -> list[BundleId]:
        """Returns the ids of all bundles with this content. Those of removed bundles count only if
        it has no other: what was removed gives nobody a right to what another bundle has."""
        names, snapshot = self._index.bundles_of(digest), self.snapshot()
        entries = {name: snapshot.bundles.get(name) for name in names}
        live = [name for name, one in entries.items() if one and one.record.state is not BundleState.REMOVED]
        return live or names

    def hosts_running(self, job: JobId) -> list[SupervisorId]:
        """Returns the supervisors to which a job's workers are assigned."""
        return self._index.running(job)

    def registered_hosts(self, snapshot: ClusterSnapshot) -> frozenset[str]:
        """Returns the addresses of all masters and supervisors.

        It is the same object until one of them comes or goes, since each announce asks for it. A
        large cluster's is renewed every few seconds at most.
        """
        now = time.monotonic()
        if now >= self._registered_until:
            self._registered, self._registered_at = _registered(snapshot), now
            self._registered_until = float("inf")
        return self._registered


def registered_host(snapshot: ClusterSnapshot, peer: PeerId) -> RegisteredHost | None:
    """Returns the master or supervisor that is registered under this id."""
    if (master := snapshot.masters.get(MasterId(peer))) is not None:
        return RegisteredHost(PeerRole.MASTER, master.host)
    if (supervisor := snapshot.supervisors.get(SupervisorId(peer))) is not None:
        return RegisteredHost(PeerRole.SUPERVISOR, supervisor.host)
    return None


def _registered(snapshot: ClusterSnapshot) -> frozenset[str]:
    out = _revoked(snapshot)
    hosts = [(str(id_), m.host) for id_, m in snapshot.masters.items()]
    hosts += [(str(id_), s.host) for id_, s in snapshot.supervisors.items()]
    return frozenset(host for id_, host in hosts if id_ not in out)


def _revoked(snapshot: ClusterSnapshot) -> frozenset[str]:
    """Returns the ids of hosts that were shut out."""
    return frozenset(id_ for id_, entry in snapshot.hosts.items() if entry.record.is_revoked)


def revoked_addresses(snapshot: ClusterSnapshot) -> frozenset[str]:
    """Returns the addresses of hosts that were shut out."""
    out = _revoked(snapshot)
    registered = {h.host for id_ in out if (h := snapshot.supervisors.get(SupervisorId(id_))) is not None}
    return frozenset(registered).union(*(snapshot.hosts[id_].record.addresses for id_ in out))


def _held(snapshot: ClusterSnapshot, bundle: BundleId) -> tuple[Digest, frozenset[PeerId]] | None:
    record = snapshot.bundles[bundle].record
    holders = snapshot.holders(bundle)
    if not holders or record.state is BundleState.REMOVED:
        return None
    return record.digest, frozenset(PeerId(holder) for holder in holders)
