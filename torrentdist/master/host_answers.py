"""Answers what a master's host asks its daemon, from the rooms of the master.

Always: the daemon sets each room as soon as it is built, and the host asks only after that.
"""

from collections.abc import Callable, Collection, Iterable

from torrentdist.bundle.store.store import KeepReason, StoreUsage, claim_everything
from torrentdist.distributor.protocol import Holder
from torrentdist.host.telemetry.metrics import Metrics, Sample
from torrentdist.master.bundles.room import BundlesRoom
from torrentdist.master.master_core import MasterCore
from torrentdist.master.master_metrics import COUNTED
from torrentdist.master.swarm.room import SwarmRoom
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.swarm_messages import PeerAddress, SwarmAnnounce, SwarmAnswer, SwarmEntry
from torrentdist.swarm.swarm_picture import SwarmPicture


class HostAnswers:
    """`samples` returns the values of a scrape."""

    core: MasterCore
    swarm: SwarmRoom
    bundles: BundlesRoom

    def __init__(self, samples: Callable[[], Iterable[Sample]] = tuple) -> None:
        self.metrics = Metrics(samples)
        self.metrics.has(*COUNTED)

    def masters(self) -> list[str]:
        return [m.url for m in self.core.records.snapshot().masters.values()] or [self.core.url]

    def other_masters(self) -> list[str]:
        me = self.core.session.me
        return [m.url for id_, m in self.core.records.snapshot().masters.items() if id_ != me]

    def swarm_entries(self) -> list[SwarmEntry]:
        return self.swarm.swarms.own_entries()

    def hear_own(self, url: str, announce: SwarmAnnounce) -> SwarmAnswer | None:
        return self.swarm.swarms.hear_own(announce) if url == self.core.url else None

    def hear_picture(self, picture: SwarmPicture) -> None:
        """Does nothing: a master's records and directory contain all that the picture does."""

    def peers_at_hand(self, digest: Digest) -> list[PeerAddress]:
        return self.swarm.swarms.peers_at_hand(digest)

    def claims(self, digest: Digest) -> Collection[KeepReason]:
        """A master keeps every bundle."""
        return claim_everything(digest)

    def make_room(self, size: int, usage: StoreUsage) -> None:
        """Does nothing: a master holds no data that can be recreated."""

    def on_damage(self) -> None:
        self.bundles.attempts.poke()

    async def holders(self, bundle: BundleId) -> list[Holder]:
        snapshot = self.core.session.mirror.snapshot
        return [Holder(id_, snapshot.masters[id_].url) for id_ in sorted(snapshot.holders(bundle))]

    async def metafile_for_plugin(self, bundle: BundleId) -> bytes:
        return await self.bundles.metafiles.of_bundle(bundle)
