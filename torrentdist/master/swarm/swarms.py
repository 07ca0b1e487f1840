"""Runs the directory of swarms in a master: takes peers' announces, and tells them the other peers.

Always: an address may connect to the engine from the moment that its announce was heard, so that
the first connection succeeds.
Never: let a peer in for a digest that the cluster does not know. The engine has no torrent for it.
"""

import asyncio
import time
from collections.abc import Iterable

import msgspec

from torrentdist.master.master_core import MasterCore
from torrentdist.master.swarm.stock_announces import StockAnnounces
from torrentdist.master.swarm.swarm_records import SwarmRecords, registered_host
from torrentdist.master.swarm.zones import Zones
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, JobId, PeerId, SupervisorId
from torrentdist.model.records import SupervisorRecord
from torrentdist.model.wire.swarm_messages import (
    PeerAddress,
    PeerRole,
    SwarmAnnounce,
    SwarmAnswer,
    SwarmEntry,
    SwarmPeers,
)
from torrentdist.swarm.directory.admission import limits_for
from torrentdist.swarm.directory.announce_binding import AnnounceSender, bound
from torrentdist.swarm.directory.announce_delta import shortened
from torrentdist.swarm.directory.directory import Periods, SwarmDirectory, SwarmMember
from torrentdist.swarm.directory.directory_values import HeldBundles
from torrentdist.swarm.directory.metafile_relay import MetafileRelay

EXPIRE_SECS = 0.5
"""Seconds between two looks for peers that have fallen silent."""
MOST_GOODBYES = 10_000


class Swarms:
    def __init__(self, core: MasterCore) -> None:
        config = core.config.swarm
        periods = Periods(fetching_secs=config.fetching_secs, seeding_secs=config.seeding_secs)
        limits = limits_for(config.most_peers)
        self.zones = Zones(config.zones, core.records.snapshot)
        self.directory = SwarmDirectory(
            own_host=core.address,
            periods=periods,
            limits=limits,
            place_of=self.zones.place,
            networks=config.open_networks,
        )
        self._me = PeerId(core.session.me)
        self._runtime = core.host.runtime
        self._mirror = core.session.mirror
        self._records = SwarmRecords(self.directory, core.records.snapshot)
        self._stock = StockAnnounces(self.directory, self._records, core.records.secrets.tracker_secrets)
        self._relay = MetafileRelay()
        self._unrecorded: set[Digest] = set()
        """Digests that this master may have to name, because the records do not say that it has
        them."""
        self._runtime.engine.on_entered.append(self._unrecorded.add)
        self._wanted: set[Digest] = set()
        """Digests whose metafile no master has any more."""
        self.said_goodbye: dict[str, None] = {}
        """The peers that said in their last announce that they stop."""
        self._awaited: dict[Digest, asyncio.Event] = {}
        """Digests of which a fetch waits for the first peer."""
        self._crowds: set[Digest] = set()
        """Digests that many peers fetch at once, as the engine was told."""

    def peers_at_hand(self, digest: Digest) -> list[PeerAddress]:
        """Returns the peers that this master's own engine may connect to."""
        self._records.follow()
        return self.directory.handout(digest, self._me, now=time.monotonic())

    async def run(self) -> None:
        """Forgets silent peers, settled records and swarms that are no crowds any more, for
        ever."""
        while True:
            self._records.follow()
            if self.directory.expire(time.monotonic()):
                self._open_door()
            self._records.settle()
            for arrived in self._awaited.values():
                arrived.set()
            ended = [digest for digest in self._crowds if not self.directory.counts(digest).incomplete]
            self._crowds.difference_update(ended)
            self._runtime.engine.crowd_all(dict.fromkeys(ended))
            await asyncio.sleep(EXPIRE_SECS)

    def names(self, digest: Digest) -> list[BundleId]:
        """Returns the ids of all bundles with this content."""
        self._records.follow()
        return self._records.names(digest)

    def hosts_running(self, job: JobId) -> list[SupervisorId]:
        """Returns the supervisors to which a job's workers are assigned."""
        self._records.follow()
        return self._records.hosts_running(job)

    def members(self, digest: Digest) -> dict[PeerId, SwarmEntry]:
        """Returns what each peer of the swarm said of itself last."""
        self._records.follow()
        return {member.peer: member.entry for member in self.directory.members(digest)}

    def held(self, peer: PeerId) -> HeldBundles | None:
        """Returns the complete bundles that a peer announces; None: the peer is unknown or
        forgotten.
        """
        return self.directory.complete_bundles(peer)

    def may_complete(self, digest: Digest) -> bool:
        """Whether some peer could complete a download of this digest.

        A master that still waits for pieces does not count.
        """
        self._records.follow()
        return any(_may_complete(member) for member in self.directory.members(digest))

    def own_entries(self) -> list[SwarmEntry]:
        """Returns what this master announces of itself.

        Other masters know from the records what it holds. So it names only the rest, and what was
        recorded a moment ago; it names everything while it cannot see the records.
        """
        self._records.follow()
        if not self._mirror.connected:
            return self._runtime.swarm_entries()
        self._unrecorded |= self._records.take_changed()
        for digest in [*self._unrecorded]:
            if self._is_recorded(digest) or self._runtime.engine.transfer(digest) is None:
                self._unrecorded.discard(digest)
        return self._runtime.swarm_entries(self._unrecorded, self._is_recorded)

    def _is_recorded(self, digest: Digest) -> bool:
        """Whether every master has read by now that this master holds the digest."""
        return digest in self.directory.recorded(self._me) and digest not in self._records.settling()

    def seen_elsewhere(self, digest: Digest) -> bool:
        """Whether some peer has the whole content. A supervisor's copy counts."""
        return any(member.entry.complete for member in self.directory.members(digest))

    def giver(self, digest: Digest, size: int, asker: str) -> SupervisorRecord | None:
        """Returns the supervisor that gives `asker` this metafile; None: this master does."""
        known = self._records.snapshot().supervisors
        able = {str(name): supervisor for name, supervisor in known.items() if supervisor.url}
        giver = self._relay.giver(digest, size, asker, time.monotonic(), able.__contains__)
        return None if giver is None else able[giver]

    def source(self, digest: Digest, flow: int, asker: PeerId, attempt: int) -> SupervisorRecord | None:
        """Returns the supervisor from which the asker fetches a flow across its zone's border."""
        known = self._records.snapshot().supervisors
        able = {PeerId(name): supervisor for name, supervisor in known.items() if supervisor.url}
        source = self.directory.source(digest, flow, asker, attempt=attempt, able=able.__contains__)
        return None if source is None else able[source]

    async def wait_for_peers(self, digest: Digest, secs: float) -> None:
        """Returns once somebody announces that swarm. One caller may wait for a digest."""
        arrived = self._awaited.setdefault(digest, asyncio.Event())
        try:
            async with asyncio.timeout(secs):
                while not self.peers_at_hand(digest):
                    arrived.clear()
                    await arrived.wait()
        except TimeoutError:
            raise TorrentdistError("timed_out", what=f"waiting for a peer of {digest[:12]}", seconds=secs) from None
        finally:
            del self._awaited[digest]

    def want_metafile(self, digest: Digest) -> None:
        """Asks the peers of the swarm for a metafile that no master has."""
        self._wanted.add(digest)

    def got_metafile(self, digest: Digest) -> None:
        self._wanted.discard(digest)

    def hear(self, announce: SwarmAnnounce, sender: AnnounceSender, hidden: Iterable[Digest] = ()) -> SwarmAnswer:
        """Hears the announce of a peer, as far as its sender has proven what it says.

        `hidden`: digests that are answered as if nobody knew them.
        """
        snapshot = self._records.follow()
        announce = bound(announce, sender, registered_host(snapshot, announce.peer))
        registered = self._records.registered_hosts(snapshot)
        answer = self.directory.announce(
            announce,
            source_host=sender.address,
            now=time.monotonic(),
            owner=sender.owner,
            facts=self._records.facts_of,
            masters=[m.url for m in snapshot.masters.values()],
            registered_hosts=registered,
        )
        self._note_goodbye(announce)
        self._runtime.known.allow_also(self.directory.addresses(registered, time.monotonic()))
        for entry in announce.swarms:
            if (arrived := self._awaited.get(entry.digest)) is not None:
                arrived.set()
        crowds = {digest: said.place.receivers for digest, said in answer.swarms.items() if said.place is not None}
        self._crowds.update(crowds)
        self._runtime.engine.crowd_all(crowds)
        wanted = [entry.digest for entry in announce.swarms if entry.digest in self._wanted]
        swarms = answer.swarms | {digest: SwarmPeers() for digest in hidden}
        return shortened(msgspec.structs.replace(answer, swarms=swarms, wanted=wanted), announce)

    def hear_own(self, announce: SwarmAnnounce) -> SwarmAnswer:
        """Hears this master's own announce, which needs no proof and no request."""
        return self.hear(announce, AnnounceSender(address=announce.host or "127.0.0.1"))

    def _note_goodbye(self, announce: SwarmAnnounce) -> None:
        self.said_goodbye.pop(announce.peer, None)
        if announce.left and announce.role in (PeerRole.MASTER, PeerRole.SUPERVISOR):
            self.said_goodbye[announce.peer] = None
            if len(self.said_goodbye) > MOST_GOODBYES:
                del self.said_goodbye[next(iter(self.said_goodbye))]

    def hear_stock(self, query: bytes, key: str, source: str) -> bytes:
        """Hears the announce of a stock BitTorrent client, and returns the bencoded answer."""
        body = self._stock.answer(query, key, source)
        self._open_door()
        return body

    def tracker_urls(self, digest: Digest) -> list[str]:
        return self._stock.tracker_urls(digest)

    def _open_door(self) -> None:
        """Lets all peers of the directory connect to the engine."""
        registered = self._records.registered_hosts(self._records.snapshot())
        self._runtime.known.allow_also(self.directory.addresses(registered, time.monotonic()))


def _may_complete(member: SwarmMember) -> bool:
    return member.entry.complete or member.role is PeerRole.CLIENT
