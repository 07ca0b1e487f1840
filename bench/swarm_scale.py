"""Control traffic on paper, from the product's own records and periods: what masters hear and say as a fleet grows.

Always holds: sizes are of real encoded messages. Must not do: pretend to know times; those come from the lab.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.plan import SwarmPlace
from torrentdist.model.views import (
    PeerAddress,
    PeerRole,
    SwarmAnnounce,
    SwarmAnswer,
    SwarmEntry,
    SwarmPeers,
)
from torrentdist.swarm.directory import Limits, Periods

DIGEST = Digest("a" * 64)
HASH = 32
MIB = 1024 * 1024


@dataclass(frozen=True)
class Load:
    hosts: int
    announces_per_sec: float
    """At each master, while everybody fetches."""
    period: float
    master_mbit: float
    """What each master sends in answers."""
    metafile_mib: float
    """What masters send in metafiles, once, for a bundle of 2048 pieces."""


def load(hosts: int) -> Load:
    periods, limits = Periods(), Limits()
    period = max(periods.fetching_secs, hosts / periods.fetching_per_sec)
    peers = [
        PeerAddress(host=f"10.0.{n // 250}.{n % 250}", port=7061, role=PeerRole.SUPERVISOR)
        for n in range(min(hosts, limits.handout))
    ]
    answer = SwarmAnswer(
        interval=period,
        you="10.0.0.1",
        swarms={DIGEST: SwarmPeers(peers=peers, replicas=3, place=SwarmPlace(number=1, receivers=hosts))},
        addresses=[f"10.{n // 62500}.{n // 250 % 250}.{n % 250}" for n in range(hosts)],
        masters=[f"http://10.9.0.{n}:7060" for n in range(3)],
    )
    said = len(msgspec.json.encode(answer))
    return Load(hosts, hosts / period, period, said * 8 * hosts / period / 1e6, hosts * 2048 * HASH / MIB)


def announce_bytes() -> int:
    entry = SwarmEntry(digest=DIGEST, complete=False, done=1 << 24, size=1 << 25, rate=3e6)
    announce = SwarmAnnounce(peer=PeerId("s1"), role=PeerRole.SUPERVISOR, port=7061, host="10.0.0.1", swarms=[entry])
    return len(msgspec.json.encode(announce))


def main() -> None:
    print(f"an announce has {announce_bytes()} bytes without HTTP headers\n")
    print("| hosts | announces/s per master | every | answers, Mbit/s | metafiles, MiB |\n|---|---|---|---|---|")
    for hosts in (100, 1_000, 10_000, 100_000):
        at = load(hosts)
        print(
            f"| {hosts:,} | {at.announces_per_sec:.0f} | {at.period:.0f} s "
            f"| {at.master_mbit:,.1f} | {at.metafile_mib:,.1f} |"
        )


if __name__ == "__main__":
    main()
