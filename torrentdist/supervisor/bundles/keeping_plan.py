"""Plans which bundles a supervisor fetches, gives up, drops, seeds and stops seeding.

Always: a bundle is dropped only after a master reported that it was removed, and not while
somebody has it mounted. What the host is to keep is seeded, which tells masters that it is here. A
bundle that is no longer assigned stays in the store until its room is needed.
Pure: no I/O and no clock.
"""

from collections.abc import Mapping

import msgspec

from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.policies.bundle_terms import Priority


class FetchBundle(msgspec.Struct, frozen=True):
    bundle: BundleId


class DropBundle(msgspec.Struct, frozen=True):
    digest: Digest


class DropArrival(msgspec.Struct, frozen=True):
    """Drop what has arrived of a bundle whose fetch has failed or was interrupted."""

    digest: Digest


class BeginSeeding(msgspec.Struct, frozen=True):
    """Seed a bundle that is here and has left its swarm: one that is wanted again, or one that has
    no id any more."""

    digest: Digest


class StopSeeding(msgspec.Struct, frozen=True):
    digest: Digest


class CancelFetch(msgspec.Struct, frozen=True):
    bundle: BundleId


Action = FetchBundle | DropBundle | DropArrival | BeginSeeding | StopSeeding | CancelFetch

FIRST_RETRY_SECS = 1.0
LONGEST_RETRY_SECS = 30.0
UNWANTED_SECS = 600.0
"""How long what has arrived stays for a user who tries again."""
_RANKS = {Priority.LOW: 0, Priority.NORMAL: 1, Priority.HIGH: 2}


class KeepingState(msgspec.Struct, frozen=True):
    assigned: frozenset[BundleId]
    requested: frozenset[BundleId]
    """Bundles that a local user requested."""
    bindings: Mapping[BundleId, Digest]
    idle_secs: Mapping[Digest, float]
    """Seconds since each published bundle was last used."""
    seeding: frozenset[Digest]
    fetching: frozenset[BundleId]
    removed: frozenset[Digest]
    """Digests that a master reported as removed."""
    not_before: Mapping[BundleId, float] = msgspec.field(default_factory=dict)
    seed_secs: float = -1.0
    priorities: Mapping[BundleId, Priority] = msgspec.field(default_factory=dict)
    """The priorities of assigned bundles. Every other bundle has the normal one."""
    needed: frozenset[BundleId] = frozenset()
    """Assigned bundles that the workers of this host need."""
    limited: frozenset[BundleId] = frozenset()
    """Assigned bundles that are fetched at a limited rate, which leaves room for others."""
    stuck: frozenset[BundleId] = frozenset()
    """Bundles that are fetched and do not come. Nothing waits for them."""
    unwanted_secs: Mapping[Digest, float] = msgspec.field(default_factory=dict)
    """Seconds since nobody wants each bundle that has arrived in part and is not being fetched."""
    held: frozenset[Digest] = frozenset()
    """Bundles that somebody has mounted."""
    unknown: frozenset[Digest] = frozenset()
    """Digests that no master has a record of. An id of one may stand for another content now."""
    lacks_room: bool = False
    """Whether a fetch has found no room."""

    def rank(self, bundle: BundleId) -> int:
        return _RANKS[self.priorities.get(bundle, Priority.NORMAL)]


def plan(host: KeepingState, now: float) -> list[Action]:
    arriving = {host.bindings[bundle] for bundle in host.fetching if bundle in host.bindings}
    here = host.idle_secs.keys() | arriving | host.unwanted_secs.keys()
    actions: list[Action] = [DropBundle(d) for d in sorted((host.removed & here) - host.held)]
    actions += [
        DropArrival(digest)
        for digest, secs in sorted(host.unwanted_secs.items())
        if digest not in host.removed | host.held and (secs >= UNWANTED_SECS or host.lacks_room)
    ]
    wanted = host.assigned | host.requested
    unwanted = sorted(host.fetching - wanted)
    actions += [CancelFetch(bundle) for bundle in unwanted if host.bindings.get(bundle) not in host.removed]
    actions += [FetchBundle(bundle) for bundle in _first(host, wanted, now)]
    kept = {host.bindings[bundle] for bundle in wanted if bundle in host.bindings}
    # What has no id any more is seeded, too: masters of earlier releases say what is removed of our
    # swarms only.
    kept |= host.idle_secs.keys() - set(host.bindings.values())
    silent = (kept & host.idle_secs.keys()) - host.removed - host.seeding
    actions += [BeginSeeding(digest) for digest in sorted(silent)]
    if host.seed_secs >= 0:
        idle = sorted(d for d in host.seeding - host.removed if host.idle_secs.get(d, 0.0) > host.seed_secs)
        actions += [StopSeeding(digest) for digest in idle if digest not in kept]
    return actions


def _first(host: KeepingState, wanted: frozenset[BundleId], now: float) -> list[BundleId]:
    """Returns the bundles to fetch now. One waits while another of a higher priority arrives or may
    begin, unless that one comes at a limited rate. A local user waits for nobody, and nobody for a
    local user. A worker of this host waits for nobody, either."""

    def is_due(bundle: BundleId) -> bool:
        digest = host.bindings.get(bundle)
        have = digest is not None and digest in host.idle_secs and digest not in host.removed | host.unknown
        return not have and host.not_before.get(bundle, now) <= now

    due = [bundle for bundle in sorted(wanted - host.fetching) if is_due(bundle)]
    arriving = (wanted & host.fetching) - host.stuck
    highest = max((host.rank(bundle) for bundle in {*due, *arriving} - host.requested - host.limited), default=0)
    at_once = host.requested | host.needed
    return [bundle for bundle in due if bundle in at_once or host.rank(bundle) >= highest]
