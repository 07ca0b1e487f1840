"""Simulates broadcasts to hosts in zones and racks, beside the same hosts without zones.

`python -m bench.scale.zones` prints the table of docs/performance.md.

Always: hosts, links and the plan are those of simulation.py. Every bundle has 1,024 pieces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench.scale.large_fleet import LINK_TIME, PIECE
from bench.scale.simulation import World, crowd

PIECES = 1024
CASES: tuple[tuple[str, int, Sequence[str], str], ...] = (
    ("48 hosts in 3 zones, the holder in one of them", 48, ("a", "b", "c"), "a"),
    ("48 hosts in 3 zones, the holder in none of them", 48, ("a", "b", "c"), ""),
    ("48 hosts in a large, a small and a tiny zone", 48, [*"a" * 36, *"b" * 10, *"c" * 2], "a"),
    ("60 hosts in 5 racks of 2 zones", 60, ("a/1", "a/2", "b/1", "b/2", "b/3"), "a/1"),
    ("1,000 hosts in 5 zones, the holder in one of them", 1000, ("a", "b", "c", "d", "e"), "a"),
)


def broadcast(hosts: int, places: Sequence[str], holder: str) -> World:
    world = World(PIECES, crowd(hosts, places), holder_zone=holder, tick_secs=LINK_TIME / PIECES, piece_length=PIECE)
    assert world.run(limit=20 * PIECES), f"{hosts} hosts are not done in 20 link times"
    return world


def main() -> None:
    print("| hosts | without zones | with zones | copies into a zone, most | into a rack, most | from the holder |")
    print("|---|--:|--:|--:|--:|--:|")
    for what, hosts, places, holder in CASES:
        blind, world = broadcast(hosts, ("",), ""), broadcast(hosts, places, holder)
        zones: Counter[str] = Counter()
        racks: Counter[str] = Counter()
        for receiver in world.receivers:
            zones[receiver.zone.partition("/")[0]] += receiver.outside
            racks[receiver.zone] += receiver.elsewhere
        has_racks = any("/" in place for place in places)
        print(
            f"| {what} | {blind.tick / PIECES:.2f} T | {world.tick / PIECES:.2f} T "
            f"| {max(zones.values()) / PIECES:.2f} | {f'{max(racks.values()) / PIECES:.2f}' if has_racks else ''} "
            f"| {world.sent_by_holders.total() / PIECES:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
