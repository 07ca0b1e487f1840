"""The directory of swarms at work in a master: hears peers, opens the engine's door to them, forgets the silent.

Always holds: an address may connect from the moment that its announce was heard, so that the first dial succeeds.
Must not do: let a peer in for a digest that the cluster doesn't know; the engine has no torrent for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from torrentdist.cluster.snapshot import ClusterSnapshot
from torrentdist.host.runtime import HostRuntime
from torrentdist.model.config import SwarmConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, PeerId
from torrentdist.model.records import BundleState
from torrentdist.model.views import PeerAddress, PeerRole, SwarmAnnounce, SwarmAnswer, SwarmEntry
from torrentdist.swarm.brief import brief
from torrentdist.swarm.directory import Member, Periods, SwarmDirectory, SwarmFacts
from torrentdist.swarm.handing import Handing
from torrentdist.swarm.tracker import Tracker, announce_key

EXPIRE_SECS = 0.5


class Swarms:
    def __init__(
        self,
        me: PeerId,
        runtime: HostRuntime,
        snapshot: Callable[[], ClusterSnapshot],
        *,
        own_host: str,
        config: SwarmConfig,
    ) -> None:
        periods = Periods(fetching_secs=config.fetching_secs, seeding_secs=config.seeding_secs)
        self.directory = SwarmDirectory(own_host=own_host, periods=periods)
        self._me = me
        self._runtime = runtime
        runtime.peers_at_hand = self.peers_at_hand
        self._snapshot = snapshot
        self._wanted: set[Digest] = set()
        self._crowds: set[Digest] = set()
        self._handing = Handing()
        self._facts: tuple[int, dict[Digest, SwarmFacts]] = (-1, {})
        self._registered: tuple[int, frozenset[str]] = (-1, frozenset())

    def peers_at_hand(self, digest: Digest) -> list[PeerAddress]:
        return self.directory.handout(digest, self._me, now=time.monotonic())

    async def run(self) -> None:
        while True:
            if self.directory.expire(time.monotonic()):
                self._open_door()
            for digest in [d for d in self._crowds if not self.directory.counts(d).incomplete]:
                self._crowds.discard(digest)
                self._runtime.engine.crowd(digest, None)
            await asyncio.sleep(EXPIRE_SECS)

    def members(self, digest: Digest) -> dict[PeerId, SwarmEntry]:
        return {member.peer: member.entry for member in self.directory.members(digest)}

    def held(self, peer: PeerId) -> int | None:
        """How many complete bundles a peer announces; None: it was not heard, or is forgotten."""
        return self.directory.complete_bundles(peer)

    def active(self) -> set[Digest]:
        """Digests that somebody is in the swarm of who may have it all. Masters that wait for the rest are nobody."""
        digests = {entry.record.digest for entry in self._snapshot().bundles.values()}
        return {d for d in digests if any(_may_complete(member) for member in self.directory.members(d))}

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
        snapshot = self._snapshot()
        facts, registered = self._known_facts(snapshot), self._registered_hosts(snapshot)
        answer = self.directory.announce(
            announce,
            source_host=source,
            now=time.monotonic(),
            facts=lambda digest: facts.get(digest, SwarmFacts()),
            masters=[m.url for m in snapshot.masters.values()],
            registered_hosts=registered,
        )
        self._runtime.allow_also(self.directory.addresses(registered))
        for digest, said in answer.swarms.items():
            if said.place is not None:
                self._crowds.add(digest)
                self._runtime.engine.crowd(digest, said.place.receivers)
        wanted = [entry.digest for entry in announce.swarms if entry.digest in self._wanted]
        return brief(msgspec.structs.replace(answer, wanted=wanted), announce)

    def hear_stock(self, query: bytes, key: str, source: str) -> bytes:
        snapshot = self._snapshot()
        if snapshot.cluster is None:
            raise TorrentdistError("not_ready", detail="the cluster's record is not known yet")
        tracker = Tracker(
            self.directory, secret=snapshot.cluster.announce_key, digests=lambda: self._known_facts(snapshot)
        )
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
        self._runtime.allow_also(self.directory.addresses(self._registered_hosts(self._snapshot())))

    def _known_facts(self, snapshot: ClusterSnapshot) -> dict[Digest, SwarmFacts]:
        """By digest, made once per revision of the snapshot: an announce names hundreds of them."""
        if self._facts[0] != snapshot.version:
            self._facts = (snapshot.version, _facts(snapshot))
        return self._facts[1]

    def _registered_hosts(self, snapshot: ClusterSnapshot) -> frozenset[str]:
        """The same object for as long as the snapshot is the same: it is asked for with each announce."""
        if self._registered[0] != snapshot.version:
            self._registered = (snapshot.version, _registered(snapshot))
        return self._registered[1]


def _may_complete(member: Member) -> bool:
    return member.entry.complete or member.role is PeerRole.CLIENT


def _registered(snapshot: ClusterSnapshot) -> frozenset[str]:
    return frozenset(m.host for m in snapshot.masters.values()) | {s.host for s in snapshot.supervisors.values()}


def _facts(snapshot: ClusterSnapshot) -> dict[Digest, SwarmFacts]:
    facts: dict[Digest, SwarmFacts] = {}
    expected: dict[BundleId, tuple[PeerId, ...]] = {}
    # In the order of their assignments, which is the same at every master: a newcomer comes last.
    for id_, assignment in sorted(snapshot.assignments.items(), key=lambda item: (item[1].mtime, item[0])):
        for bundle in assignment.record.bundles:
            if id_ in snapshot.supervisors:
                expected[bundle] = (*expected.get(bundle, ()), PeerId(id_))
    for bundle, entry in snapshot.bundles.items():
        before = facts.get(entry.record.digest)
        removed = entry.record.state is BundleState.REMOVED
        facts[entry.record.digest] = SwarmFacts(
            removed=removed and (before is None or before.removed),
            pinned=entry.record.pinned or (before is not None and before.pinned),
            replicas=max(len(snapshot.holders(bundle)), before.replicas if before else 0),
            expected=(before.expected if before else ()) + expected.get(bundle, ()),
        )
    return facts
