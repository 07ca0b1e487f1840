"""The record of a distribution in ZooKeeper: which hosts should get a bundle, and in which order.

Always: all times are by ZooKeeper's clock.
Never: hold progress. The hosts announce it, and every master has it in memory.
"""

from enum import StrEnum

import msgspec

from torrentdist.model.ids import BundleId, SupervisorId
from torrentdist.model.policies.bundle_terms import ANY_TERMS, BundleTerms
from torrentdist.model.records import Record


class DistributionState(StrEnum):
    RUNNING = "running"
    COMPLETE = "complete"
    """Every host has been told. Its reason names those that still lack the bundle."""
    STANDING = "standing"
    """Every host has been told, and those that register later will be."""
    STOPPED = "stopped"
    """A canary, or a whole wave, failed. The hosts behind it were not told."""
    CANCELLED = "cancelled"


class HostsUntil(msgspec.Struct, frozen=True):
    """Hosts that keep a bundle until a time; None: for good."""

    hosts: tuple[SupervisorId, ...]
    ends_at: float | None
    terms: BundleTerms | None = None
    """How they fetch it; None: as the distribution says."""


class DistributionRecord(Record, frozen=True, kw_only=True):
    """The record at /distributions/<bundle-id>. A later order for the bundle changes it:
    master/policies/repeated_orders.py says how."""

    bundle: BundleId
    owner: str = ""
    """The name of the sender who asked for it."""
    state: DistributionState = DistributionState.RUNNING
    reason: str = ""
    begun_at: float = 0.0
    hosts: tuple[SupervisorId, ...] = ()
    """In the order of their waves."""
    canary: int = 0
    """The number of hosts in the first wave, all of which must get the bundle; 0: none."""
    concurrency: int = 0
    """The number of hosts in each further wave; 0: all."""
    everywhere: bool = False
    """Whether hosts that register later and have the labels get it too."""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    ends_at: float | None = None
    """When the hosts no longer have to keep it; None: never."""
    other_ends: tuple[HostsUntil, ...] = ()
    """Hosts of earlier orders that keep it until another time than `ends_at`."""
    terms: BundleTerms = ANY_TERMS

    @property
    def own_terms(self) -> dict[SupervisorId, BundleTerms]:
        """The terms of the hosts that have others than the distribution."""
        return {host: group.terms for group in self.other_ends if group.terms is not None for host in group.hosts}

    @property
    def is_over(self) -> bool:
        return self.state not in (DistributionState.RUNNING, DistributionState.STANDING)

    @property
    def claims(self) -> dict[str, bool]:
        """The reasons for which its bundle may not be removed, and whether each applies."""
        return {
            "distributed": self.state is DistributionState.RUNNING,
            "standing": self.state is DistributionState.STANDING,
            "promised": self.ends_at is not None or bool(self.other_ends),
        }
