"""The directory of swarms at work in a master: hears peers, opens the engine's door to them, forgets the silent.

Always holds: an address may connect from the moment that its announce was heard, so that the first dial succeeds.
Must not do: let a peer in for a digest that the cluster doesn't know; the engine has no torrent for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from torrentdist.cluster.records.record_index import Follower, PerBundle, RecordIndex
from torrentdist.cluster.records.snapshot import Changes, ClusterSnapshot
from torrentdist.host.runtime import HostRuntime
from torrentdist.model.configuration.config import SwarmConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, PeerId
from torrentdist.model.records import BundleState
from torrentdist.model.wire.swarm_messages import PeerAddress, PeerRole, SwarmAnnounce, SwarmAnswer, SwarmEntry
from torrentdist.swarm.directory.announce_delta import brief
from torrentdist.swarm.directory.directory import Periods, SwarmDirectory, SwarmFacts, SwarmMember
from torrentdist.swarm.directory.metafile_relay import MetafileRelay
from torrentdist.swarm.directory.tracker import Tracker, announce_key

EXPIRE_SECS = 0.5
SETTLING_SECS = 5.0
"""A master goes on naming what its records have just said: other masters read them a moment later."""


class Swarms:
    def __init__(
        self,
        me: PeerId,
        runtime: HostRuntime,
        snapshot: Callable[[], ClusterSnapshot],
        sees_records: Callable[[], bool],
        *,
        own_host: str,
        config: SwarmConfig,
    ) -> None:
        periods = Periods(fetching_secs=config.fetching_secs, seeding_secs=config.seeding_secs)
        self.directory = SwarmDirectory(own_host=own_host, periods=periods)
        self._me = me
        self._runtime = runtime
        self._snapshot = snapshot
        self._sees_records = sees_records
        self._wanted: set[Digest] = set()
        self._crowds: set[Digest] = set()
        self._handing = MetafileRelay()
        self._index = RecordIndex()
        self._follower = Follower()
        self._held: PerBundle[tuple[Digest, frozenset[PeerId]]] = PerBundle(_held)
        self._recorded: dict[BundleId, Digest] = {}
        self._settling: dict[Digest, float] = {}
        """Digests whose holders changed a moment ago by the records, and when."""
        self._facts: dict[Digest, SwarmFacts] = {}
        self._registered: tuple[int, frozenset[str]] = (-1, frozenset())

    def peers_at_hand(self, digest: Digest) -> list[PeerAddress]:
        self._follow()
        return self.directory.handout(digest, self._me, now=time.monotonic())

    async def run(self) -> None:
        while True:
            self._follow()
            if self.directory.expire(time.monotonic()):
                self._open_door()
            settled = [d for d, at in self._settling.items() if time.monotonic() - at > SETTLING_SECS]
            for digest in settled:
                del self._settling[digest]
            for digest in [d for d in self._crowds if not self.directory.counts(d).incomplete]:
                self._crowds.discard(digest)
                self._runtime.engine.crowd(digest, None)
            await asyncio.sleep(EXPIRE_SECS)

    def members(self, digest: Digest) -> dict[PeerId, SwarmEntry]:
        self._follow()
        return {member.peer: member.entry for member in self.directory.members(digest)}

    def held(self, peer: PeerId) -> int | None:
        """How many complete bundles a peer announces; None: it was not heard, or is forgotten."""
        return self.directory.complete_bundles(peer)

    def may_complete(self, digest: Digest) -> bool:
        """Whether somebody is in the swarm who may have it all. Masters that wait for the rest are nobody."""
        self._follow()
        return any(_may_complete(member) for member in self.directory.members(digest))

    def own_entries(self) -> list[SwarmEntry]:
        """What this master says of itself in its announces. Its records say at every master what it holds, so it names
        only the rest, what was recorded a moment ago, and everything while it can't see the records."""
        self._follow()
        recorded = self.directory.recorded(self._me) if self._sees_records() else frozenset()
        return self._runtime.swarm_entries(recorded - self._settling.keys())

    def seen_elsewhere(self, digest: Digest) -> bool:
        """Whether some peer has all of it: a supervisor's copy is a copy."""
        return any(member.entry.complete for member in self.directory.members(digest))

    def giver(self, digest: Digest, size: int, asker: str) -> str | None:
        """The URL of the supervisor that gives `asker` this metafile; None: this master does."""
        known = self._snapshot().supervisors
        urls = {str(name): supervisor.url for name, supervisor in known.items() if supervisor.url}
        giver = self._handing.giver(digest, size, asker, time.monotonic(), urls.__contains__)
        return None if giver is None else urls[giver]

    def want_metafile(self, digest: Digest) -> None:
        """No master has it: whoever is in the swarm is asked for it."""
        self._wanted.add(digest)

    def got_metafile(self, digest: Digest) -> None:
        self._wanted.discard(digest)

    def hear(self, announce: SwarmAnnounce, source: str) -> SwarmAnswer:
        snapshot = self._follow()
        registered = self._registered_hosts(snapshot)
        answer = self.directory.announce(
            announce,
            source_host=source,
            now=time.monotonic(),
            facts=self._facts_of,
            masters=[m.url for m in snapshot.masters.values()],
            registered_hosts=registered,
        )
        self._runtime.known.allow_also(self.directory.addresses(registered))
        for digest, said in answer.swarms.items():
            if said.place is not None:
                self._crowds.add(digest)
                self._runtime.engine.crowd(digest, said.place.receivers)
        wanted = [entry.digest for entry in announce.swarms if entry.digest in self._wanted]
        return brief(msgspec.structs.replace(answer, wanted=wanted), announce)

    def hear_stock(self, query: bytes, key: str, source: str) -> bytes:
        snapshot = self._follow()
        if snapshot.cluster is None:
            raise TorrentdistError("not_ready", detail="the cluster's record is not known yet")
        tracker = Tracker(self.directory, secret=snapshot.cluster.announce_key, digests=self._index.digests_like)
        body = tracker.answer(query, key=key, source_host=source, now=time.monotonic())
        self._open_door()
        return body

    def tracker_urls(self, digest: Digest) -> list[str]:
        snapshot = self._snapshot()
        if snapshot.cluster is None:
            raise TorrentdistError("not_ready", detail="the cluster's record is not known yet")
        key = announce_key(snapshot.cluster.announce_key, digest)
        return [f"{m.url}/announce/{key}" for _, m in sorted(snapshot.masters.items())]

    def _open_door(self) -> None:
        self._runtime.known.allow_also(self.directory.addresses(self._registered_hosts(self._snapshot())))

    def _follow(self) -> ClusterSnapshot:
        """Bring what is derived from the records up to date with the newest snapshot."""
        snapshot = self._snapshot()
        news = self._follower.news(snapshot)
        if news == Changes():
            return snapshot
        self._index.follow(snapshot)
        self._facts.clear()
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
            self.directory.record(digest, frozenset().union(*same))
            if not every:
                self._settling[digest] = now
        return snapshot

    def _facts_of(self, digest: Digest) -> SwarmFacts:
        """Made once per revision of the snapshot: in a large swarm many ask for the same."""
        facts = self._facts.get(digest)
        if facts is None:
            facts = self._facts[digest] = _facts(self._snapshot(), self._index, digest)
        return facts

    def _registered_hosts(self, snapshot: ClusterSnapshot) -> frozenset[str]:
        """The same object for as long as the snapshot is the same: it is asked for with each announce."""
        if self._registered[0] != snapshot.version:
            self._registered = (snapshot.version, _registered(snapshot))
        return self._registered[1]


def _may_complete(member: SwarmMember) -> bool:
    return member.entry.complete or member.role is PeerRole.CLIENT


def _registered(snapshot: ClusterSnapshot) -> frozenset[str]:
    return frozenset(m.host for m in snapshot.masters.values()) | {s.host for s in snapshot.supervisors.values()}


def _held(snapshot: ClusterSnapshot, bundle: BundleId) -> tuple[Digest, frozenset[PeerId]] | None:
    record = snapshot.bundles[bundle].record
    holders = snapshot.holders(bundle)
    if not holders or record.state is BundleState.REMOVED:
        return None
    return record.digest, frozenset(PeerId(holder) for holder in holders)


def _facts(snapshot: ClusterSnapshot, index: RecordIndex, digest: Digest) -> SwarmFacts:
    bundles = index.bundles_of(digest)
    if not bundles:
        return SwarmFacts()
    records = [snapshot.bundles[bundle].record for bundle in bundles]
    return SwarmFacts(
        removed=all(record.state is BundleState.REMOVED for record in records),
        pinned=any(record.pinned for record in records),
        replicas=max(len(snapshot.holders(bundle)) for bundle in bundles),
        # In the order of their assignments, which is the same at every master: a newcomer comes last.
        expected=tuple(PeerId(host) for bundle in bundles for host in index.hosts_of(bundle)),
    )
