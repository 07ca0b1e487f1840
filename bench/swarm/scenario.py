"""A scenario in the lab as data, and the outcome of a run.

Always: times run from the command to the published directory on the host.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

MIB = 1024 * 1024
PROCESS_MIB = 64
BEGUN = 0.003
"""A host counts as begun when it has this part of the bundle. That is more than the metafile, which
comes down the same link."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    hosts: int = 16
    rate: float = 25.0
    """Mbit/s of every link, each way; 0: no limit."""
    size: float = 32
    """Size of the bundle in MiB."""
    beside: float = 0.0
    """Size in MiB of a second bundle that arrives at the same time. Each has a limit: the part of
    the link's speed that it is of both. 0: there is none."""
    files: int = 1
    """Number of files of about the same size that the bundle has."""
    holders: int = 1
    holder_rate: float = 0.0
    """Mbit/s of the holders' links; 0: as the others."""
    rtt: float = 0.0
    """Milliseconds from any host to any other and back."""
    apart: float = 0.0
    """Seconds between the starts of two hosts."""
    slow: int = 0
    """Number of hosts with a tenth of the rate."""
    killed: float = 0.0
    """The share of hosts that lose power when half of the time is over."""
    liars: int = 0
    """Number of additional peers that claim to have everything. They send random bytes and nothing,
    in turn."""
    leaving: bool = False
    """All holders, which are all the masters, lose power as soon as the hosts together have one
    copy."""
    alone: bool = False
    """The hosts have no supervisor; each runs `torrentdist download`."""
    zones: int = 0
    """Number of zones that the hosts are in, in turn. The holders are in the first one. 0: there
    are no borders."""
    border: float = 0.0
    """Mbit/s of each zone's border, each way; 0: no limit."""
    blind: bool = False
    """The hosts do not know in which zone they are."""
    tls: bool = False
    """`tls.mode` is mutual, and peers exchange pieces over TLS. ZooKeeper is plain as always."""

    def __post_init__(self) -> None:
        least = {
            "hosts": 1,
            "rate": 0.0,
            "size": 1 / 1024,
            "beside": 0.0,
            "files": 1,
            "holders": 1,
            "holder_rate": 0.0,
            "rtt": 0.0,
            "apart": 0.0,
            "slow": 0,
            "killed": 0.0,
            "liars": 0,
            "zones": 0,
            "border": 0.0,
        }
        for name, value in least.items():
            if getattr(self, name) < value:
                raise ValueError(f"{name}: {getattr(self, name):g} is less than {value:g}")
        if self.slow >= self.hosts or self.killed >= 1.0:
            raise ValueError("some hosts must be left to be measured")
        if self.tls and self.liars:
            raise ValueError("the peers that lie or stall have no certificate")

    @property
    def bytes(self) -> int:
        return round(self.size * MIB)

    @property
    def both(self) -> float:
        """Returns the size of all that arrives, in sizes of the bundle."""
        return 1.0 + self.beside / self.size

    @property
    def holder_link(self) -> float:
        return self.holder_rate or self.rate

    @property
    def zone_names(self) -> list[str]:
        return [f"zone{number}" for number in range(self.zones)]

    @property
    def memory(self) -> int:
        """Returns the memory that its hosts' files and processes need."""
        return round(self.hosts * (self.bytes * self.both + PROCESS_MIB * MIB))


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of one run of a scenario."""

    starts: dict[str, float]
    """When each host was told to fetch, in seconds from the command."""
    ends: dict[str, float]
    """When each host that was to finish had the bundle, and the one beside it."""
    speeds: float = 0.0
    """Mean speed of the bundle by that of the one beside it. 0: there is none."""
    seeder_copies: float
    """Payload that the holders sent, in sizes of the bundle."""
    received_copies: float
    """What came down an average host's link, headers included, in sizes of the bundle."""
    progress: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """For every host, points of time with the bytes that had come down its link."""
    cpu_secs: float = 0.0
    """Processor seconds of an average host, from the command to the end of the last measured
    host."""
    python_secs: float = 0.0
    """Processor seconds of an average host's event loop. libtorrent has threads of its own."""
    duplicates: float = 0.0
    """The part of the bundle that an average host received twice. Known for ours only."""
    failed: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    """Hosts that had to finish but are not measured: those on slow links."""
    into_zones: dict[str, float] = field(default_factory=dict)
    """What crossed the border into each zone, headers included, in sizes of the bundle."""
    ordered_at: float = 0.0
    """When a master recorded the order, in seconds from the command. 0: not asked for."""
    cuts: dict[str, float] = field(default_factory=dict)
    """When each host or holder lost power."""

    @property
    def begins(self) -> list[float]:
        """Returns when each host had its first pieces, the earliest first."""
        firsts = (next((at for at, copies in seen if copies >= BEGUN), None) for seen in self.progress.values())
        return sorted(at for at in firsts if at is not None)

    @property
    def last_done(self) -> float:
        return max((end for host, end in self.ends.items() if host not in self.aside), default=float("inf"))

    @property
    def longest(self) -> float:
        """Returns the longest time from a host's own start to its end."""
        return max((end - self.starts[host] for host, end in self.ends.items()), default=float("inf"))


def median(outcomes: list[Outcome]) -> Outcome:
    """Returns the outcome with the median time of the last host."""
    ordered = sorted(outcomes, key=lambda outcome: outcome.last_done)
    middle = statistics.median_low([outcome.last_done for outcome in ordered])
    return next(outcome for outcome in ordered if outcome.last_done == middle)
