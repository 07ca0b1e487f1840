"""Plans which bundles a supervisor fetches, drops and stops seeding.

Always: a bundle is dropped only after a master reported that it was removed. A bundle that is no
longer assigned stays in the store until its room is needed.
Pure: no I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torrentdist.model.ids import BundleId, Digest


@dataclass(frozen=True)
class FetchBundle:
    bundle: BundleId


@dataclass(frozen=True)
class DropBundle:
    digest: Digest


@dataclass(frozen=True)
class StopSeeding:
    digest: Digest


Action = FetchBundle | DropBundle | StopSeeding

FIRST_RETRY_SECS = 1.0
LONGEST_RETRY_SECS = 30.0


@dataclass(frozen=True)
class KeepingState:
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
    not_before: Mapping[BundleId, float] = field(default_factory=dict)
    seed_secs: float = -1.0


def plan(host: KeepingState, now: float) -> list[Action]:
    arriving = {host.bindings[bundle] for bundle in host.fetching if bundle in host.bindings}
    actions: list[Action] = [DropBundle(d) for d in sorted(host.removed & (host.idle_secs.keys() | arriving))]
    wanted = host.assigned | host.requested
    for bundle in sorted(wanted - host.fetching):
        digest = host.bindings.get(bundle)
        have = digest is not None and digest in host.idle_secs and digest not in host.removed
        if not have and host.not_before.get(bundle, now) <= now:
            actions.append(FetchBundle(bundle))
    if host.seed_secs >= 0:
        kept = {host.bindings.get(bundle) for bundle in wanted}
        idle = sorted(d for d in host.seeding - host.removed if host.idle_secs.get(d, 0.0) > host.seed_secs)
        actions += [StopSeeding(digest) for digest in idle if digest not in kept]
    return actions
