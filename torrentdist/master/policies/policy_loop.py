"""The leader's loop over distributions and retention rules: it does what is due.

Always: every change is a decision of wave_plan.py, distribution_changes.py or retention_rules.py,
committed through the leader's fence. What fails is seen again in the next round.
Never: change anything on a master that does not lead; it only notes since when hosts make no
progress.
"""

import math
import time
from collections.abc import Callable, Collection
from functools import partial

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.records.record_index import Follower
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.log import get_logger
from torrentdist.master.bundles.bundle_operations import BATCH
from torrentdist.master.bundles.bundle_views import fleet_view
from torrentdist.master.changes.assignment_room import why_untold
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.changes.record_loop import LOOK_SECS, RecordLoop
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.master_session import MasterSession
from torrentdist.master.policies import distribution_changes as changes_of
from torrentdist.master.policies.distribution_orders import Members
from torrentdist.master.policies.retention_operations import RetentionOperations
from torrentdist.master.policies.wave_plan import (
    AwaitHosts,
    EndDistribution,
    HostOutcome,
    HostProgressClock,
    TellHosts,
    newcomers,
    next_step,
    waits_since,
)
from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.policies.distribution_record import DistributionRecord, DistributionState
from torrentdist.model.wire.fleet_messages import HostState

log = get_logger()

RUNNING_SECS = 0.5
"""Longest time between two rounds while a distribution runs. A host's progress changes no record,
so it starts no round."""
SOON_SECS = 0.1
"""Shortest time between such rounds, so that the next hosts are told soon after the last ones are
done."""
ROUND_SHARE = 0.05
"""The share of the time that such rounds may take."""
SHARE_OF_PATIENCE = 0.1
"""How much later than its patience a broken host may be found, as a share of the patience."""
RETENTION_SECS = 30.0
"""Longest time between two applications of the retention rules, since bundles grow old."""
CANCEL_SECS = 60.0
"""For how long the leader looks for hosts that fetch a bundle whose distribution was cancelled."""
SETTLE_SECS = 2.0
"""Delay of the retention rules after a change, so that a burst of changes is judged once."""


def secs_until_next_round(round_secs: float) -> float:
    """Returns the pause after a round that took so long, while a distribution runs."""
    return max(SOON_SECS, min(round_secs / ROUND_SHARE, RUNNING_SECS))


class PolicyParts(msgspec.Struct, frozen=True):
    """The parts of the master through which the loop carries out its decisions."""

    changes: LeaderChanges
    retention: RetentionOperations
    members: Members
    revision: Callable[[], int]
    """Returns a number that grows whenever a host completes a bundle or meets a problem."""


class PolicyLoop:
    def __init__(self, session: MasterSession, leadership: Leadership, parts: PolicyParts, patience: float) -> None:
        """`patience`: seconds after which a host without progress counts as broken."""
        self._zookeeper = session.zookeeper
        self._leadership = leadership
        self._parts = parts
        self._patience = patience
        self._seen: dict[tuple[BundleId, SupervisorId], HostProgressClock] = {}
        """The progress of each host that a wave waits for, by time.monotonic()."""
        self._looks: dict[BundleId, tuple[tuple[int, int], float]] = {}
        """For each running distribution: the versions of its last look, and the time.monotonic() of
        its next look if they stay the same."""
        self._follower = Follower()
        self._retention_at = math.inf
        """time.monotonic() when the retention rules are applied next."""
        self._loop = RecordLoop(session.mirror, "distributions and retention")

    async def run(self) -> None:
        await self._loop.run(self._step)

    async def _step(self, snapshot: ClusterSnapshot) -> float:
        now = self._zookeeper.server_now()
        if not snapshot.present or now is None:
            return LOOK_SECS
        if not self._leadership.is_leader():
            return await self._watch(snapshot)
        began = time.monotonic()
        running = [
            await self._loop.attempt(paths.distribution(bundle), partial(self._attend, snapshot, bundle, now))
            for bundle in snapshot.distributions
        ]
        open_ = {bundle for bundle, entry in snapshot.distributions.items() if not entry.record.is_over}
        self._forget_all_but(open_)
        self._looks = {bundle: look for bundle, look in self._looks.items() if bundle in open_}
        pause = secs_until_next_round(time.monotonic() - began) if any(running) else LOOK_SECS
        return min(pause, await self._retain(snapshot))

    async def _watch(self, snapshot: ClusterSnapshot) -> float:
        """Notes since when hosts are as they are, so that a standby that becomes the leader has no
        patience anew."""
        running = [b for b, entry in snapshot.distributions.items() if entry.record.state is DistributionState.RUNNING]
        for bundle in running:
            if bundle in snapshot.bundles:  # else its record is damaged
                await self._loop.attempt(paths.distribution(bundle), partial(self._note, snapshot, bundle))
        self._forget_all_but(running)
        return RUNNING_SECS if running else LOOK_SECS

    def _forget_all_but(self, bundles: Collection[BundleId]) -> None:
        """Forgets the hosts of all other distributions."""
        self._seen = {key: seen for key, seen in self._seen.items() if key[0] in bundles}

    async def _note(self, snapshot: ClusterSnapshot, bundle: BundleId) -> None:
        known = (snapshot.version, self._parts.revision())
        if known != self._looks.get(bundle, (None, 0.0))[0]:
            self._outcomes(snapshot, bundle)
            self._looks[bundle] = known, 0.0

    async def _attend(self, snapshot: ClusterSnapshot, bundle: BundleId, now: float) -> bool:
        """Does what is due for one distribution. Returns whether hosts are waited for."""
        entry = snapshot.distributions[bundle]
        if changes_of.closing_ops(snapshot, bundle, now):
            log.info("the record of a distribution is dropped", bundle=bundle)
            await self._change(bundle, entry.record, lambda s: changes_of.closing_ops(s, bundle, now))
        elif entry.record.state is DistributionState.RUNNING:
            await self._advance_when_due(snapshot, bundle)
            return True
        elif entry.record.state is DistributionState.STANDING:
            matching = changes_of.with_labels(snapshot, entry.record.labels)
            hosts = [host for host in matching if not why_untold(snapshot, host)]
            told = changes_of.told_of(snapshot, bundle, hosts)
            if len(told) < len(hosts):
                outcomes = self._outcomes(snapshot, bundle).values()
                pending = sum(outcome.pending(self._patience) for outcome in outcomes)
                new = newcomers(entry.record, hosts, told, pending)
                await self._change(bundle, entry.record, lambda s: changes_of.tell_ops(s, entry.record, new))
                return True
        elif entry.record.state is DistributionState.CANCELLED and now - entry.mtime < CANCEL_SECS:
            return await self._end_fetches(snapshot, bundle)
        return False

    async def _end_fetches(self, snapshot: ClusterSnapshot, bundle: BundleId) -> bool:
        """Goes on with a cancellation whose leader has died: hosts that still fetch give up."""
        states = self._outcomes(snapshot, bundle)
        fetching = {id_ for id_, seen in states.items() if seen.state in (HostState.FETCHING, HostState.STUCK)}
        if not changes_of.give_up_ops(snapshot, bundle, fetching):
            return False
        record = snapshot.distributions[bundle].record
        await self._change(bundle, record, lambda s: changes_of.give_up_ops(s, bundle, fetching))
        return True

    async def _advance_when_due(self, snapshot: ClusterSnapshot, bundle: BundleId) -> None:
        """Looks at a running distribution, unless nothing has changed since the last look. With
        many hosts, a look costs milliseconds."""
        known, clock = (snapshot.version, self._parts.revision()), time.monotonic()
        before, again_at = self._looks.get(bundle, (None, 0.0))
        if known != before or clock >= again_at:
            await self._advance(snapshot, bundle)
            self._looks[bundle] = known, clock + min(LOOK_SECS, self._patience * SHARE_OF_PATIENCE)

    async def _advance(self, snapshot: ClusterSnapshot, bundle: BundleId) -> None:
        begun = snapshot.distributions[bundle].record
        if changes_of.retell_ops(snapshot, begun):
            await self._change(bundle, begun, lambda s: changes_of.retell_ops(s, begun))
            return
        outcomes = self._outcomes(snapshot, bundle)
        step = next_step(begun, outcomes, outcomes, self._patience)
        match step:
            case TellHosts(hosts):
                log.info("the next hosts of a distribution are told", bundle=bundle, hosts=len(hosts))
                await self._change(bundle, begun, lambda s: changes_of.tell_ops(s, begun, hosts))
            case EndDistribution(state, reason):
                log.info("a distribution is over", bundle=bundle, state=state.value, reason=reason)
                await self._change(bundle, begun, lambda s: changes_of.end_ops(s.distributions[bundle], state, reason))
            case AwaitHosts():
                pass

    async def _change(self, bundle: BundleId, begun: DistributionRecord, decide: changes_of.Decide) -> None:
        """Commits a decision on the record `begun`."""
        still = changes_of.unless_changed(bundle, begun, decide)
        await self._parts.changes.make(None, still, lambda _: None, batch=BATCH)

    def _outcomes(self, snapshot: ClusterSnapshot, bundle: BundleId) -> dict[SupervisorId, HostOutcome]:
        """Returns what is known of the hosts that were told, and of those that cannot be told."""
        record, now = snapshot.bundles[bundle].record, time.monotonic()
        outcomes = {}
        fleet = fleet_view(snapshot, bundle, self._parts.members(record.digest)).hosts
        for host in (host for host in fleet if not host.is_later):
            key = (bundle, host.supervisor)
            clock = self._seen.get(key)
            if clock is None:
                since = waits_since(snapshot, host, bundle)
                waited = 0.0 if since is None else max(0.0, (self._zookeeper.server_now() or since) - since)
                clock = HostProgressClock(host.state, now - waited, now, host.done)
            self._seen[key] = clock = clock.seen(host.state, host.done, now)
            outcomes[host.supervisor] = clock.outcome(now, host.reason)
        return outcomes

    async def _retain(self, snapshot: ClusterSnapshot) -> float:
        """Applies the retention rules when it is time. Returns the seconds until the next time."""
        news = self._follower.news(snapshot)
        if not snapshot.retention:
            self._retention_at = math.inf
            return LOOK_SECS
        if news is None or news.bundles or news.policies or news.jobs:
            self._retention_at = min(self._retention_at, time.monotonic() + SETTLE_SECS)
        if time.monotonic() >= self._retention_at:
            remove = partial(self._parts.retention.remove_doomed, snapshot, self._loop)
            await self._loop.attempt(paths.RETENTION, remove)
            self._retention_at = time.monotonic() + min(RETENTION_SECS, self._loop.secs_until_turn())
        return max(0.05, self._retention_at - time.monotonic())
