"""Measures a large fleet: its time in the simulator, and the load of every master.

`python -m bench.scale.large_fleet` prints the tables. `--check` compares the simulator with the
lab's last runs. `--shares` shows the effect of more or fewer shares when holders have faster links.

Always: times come from the product's own decisions on a virtual clock, sizes from real encoded
messages, and processor time from the product's directory on this machine.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from bench.lab import changed_settings
from bench.lab.namespaces import ROOT
from bench.scale.simulation import World, crowd
from bench.swarm.swarm_results import HERE
from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmEntry
from torrentdist.swarm.directory.announce_delta import shortened
from torrentdist.swarm.directory.directory import Limits, Periods, SwarmDirectory
from torrentdist.swarm.plan import conductor
from torrentdist.swarm.plan.crowd import JUDGE_SECS, Crowd

DIGEST = Digest("a" * 64)
MASTERS = 3
MIB = 1024 * 1024
PIECE = 32 * 1024
"""Piece length of the lab's small bundles."""
LINK_TIME = 11.2
"""The lab's link time in seconds: 32 MiB over 25 Mbit/s, in 1024 pieces."""
FLEETS = {100: 1024, 1_000: 512, 10_000: 128, 100_000: 16}
"""Pieces by number of hosts, few enough that the simulator ends within ten minutes. With fewer
pieces the broadcast looks slower than it is."""
CHECKED = (8, 16, 32, 48)
"""Numbers of hosts for which the lab has recorded cases."""
ASKED = 50
CROWD, SHARED = 300, 512
"""Hosts and pieces of the runs that compare numbers of shares."""
LIMITS = Limits(peers=1 << 20, peers_per_swarm=1 << 20, memberships=1 << 20)
"""Limits of the directory, raised here so that the measurement finds the next bottleneck."""


@dataclass(frozen=True)
class Broadcast:
    hosts: int
    pieces: int
    ratio: float
    """Time from the first announce to the last host's end, in T."""
    copies: float
    busiest: int
    """Announces that each master receives in the busiest second."""
    waited: float
    """The longest time in seconds that any host received nothing."""
    seconds: float
    """Processor seconds of the simulation; of its last part if it had several."""


def simulate(
    hosts: int,
    pieces: int,
    *,
    link_time: float = LINK_TIME,
    piece_length: int = 0,
    begins: Sequence[float] = (),
    state: Path | None = None,
    longest: float = math.inf,
) -> Broadcast | None:
    """Simulates a broadcast. `begins`: when each host joins; by default all join at once. Returns
    None after `longest` seconds; the next call then continues from `state`."""
    began = time.process_time()
    tick = link_time / pieces
    if state and state.exists():
        world: World = pickle.loads(state.read_bytes())
    else:
        receivers = crowd(hosts)
        for receiver, begin in zip(receivers, begins, strict=bool(begins)):
            receiver.joins = round(begin / tick)
        length = piece_length or 32 * MIB // pieces
        world = World(pieces, receivers, tick_secs=tick, piece_length=length, expected=bool(begins))
    while not world.run(limit=world.tick + 1):
        assert world.tick < 100 * pieces, f"{hosts} hosts are not done in 100 link times"
        if time.process_time() - began > longest and state:
            state.write_bytes(pickle.dumps(world))
            return None
    return Broadcast(
        hosts,
        pieces,
        world.tick / pieces,
        world.sent_by_holders.total() / pieces,
        max(world.announces.values()),
        max(receiver.waited for receiver in world.receivers) * tick,
        time.process_time() - began,
    )


@dataclass(frozen=True)
class Load:
    """The load of one master while all hosts fetch one bundle. The master already knows the
    supervisors."""

    hosts: int
    period: float
    announces: float
    answer_bytes: int
    first_bytes: int
    """Bytes of the answer to a host that does not know the cluster's addresses yet."""
    known_secs: float
    """Processor seconds of a master for the announce of a host that is already in the swarm."""
    new_secs: float
    """Processor seconds of a master for the announce of a host that joins the swarm."""
    judge_secs: float
    """Processor seconds for a look for slow receivers."""
    change_secs: float
    """Processor seconds for a receiver that comes, and one that is done."""

    @property
    def mbit(self) -> float:
        return self.announces * self.answer_bytes * 8 / 1e6

    @property
    def processor(self) -> float:
        return self.announces * self.known_secs + self.judge_secs / JUDGE_SECS


def load(hosts: int) -> Load:
    periods = Periods()
    directory = SwarmDirectory(periods=periods, limits=LIMITS)
    registered = frozenset(_host(number) for number in range(hosts + ASKED))
    for number in range(hosts):
        directory.hear(_announce(number, ""), source_host="", now=number * 1e-6)
    tag, first, _ = _answered(directory, registered, 0, "", 1.0)
    known = [_answered(directory, registered, number, tag, 1.0 + 0.01 * number) for number in range(ASKED)]
    judged = [_answered(directory, registered, 0, tag, 10.0 + turn) for turn in range(3)]
    new = [_answered(directory, registered, hosts + number, tag, 12.0) for number in range(ASKED)]
    period = periods.fetching(hosts)
    return Load(
        hosts,
        period,
        hosts / period,
        max(said for _, said, _ in known),
        first,
        statistics.mean(secs for _, _, secs in known),
        statistics.mean(secs for _, _, secs in new),
        min(secs for _, _, secs in judged),
        _change_secs(hosts),
    )


def _change_secs(hosts: int) -> float:
    plan = Crowd()
    for number in range(hosts):
        plan.come(PeerId(f"s{number}"), 0.0)
    began = time.process_time()
    for number in range(ASKED):
        plan.go(PeerId(f"s{number}"), complete=True)
        plan.come(PeerId(f"t{number}"), 1.0)
    return (time.process_time() - began) / ASKED


def _answered(
    directory: SwarmDirectory, registered: frozenset[str], number: int, tag: str, now: float
) -> tuple[str, int, float]:
    """Returns the tag of the addresses, the bytes of the answer, and its processor time."""
    began = time.process_time()
    announce = _announce(number, tag)
    answer = directory.announce(
        announce,
        source_host="",
        now=now,
        masters=["http://10.9.0.1:7060"] * MASTERS,
        registered_hosts=registered,
    )
    answer = shortened(answer, announce)
    said = len(msgspec.json.encode(answer))
    return answer.addresses_tag, said, time.process_time() - began


def _announce(number: int, tag: str) -> SwarmAnnounce:
    entry = SwarmEntry(digest=DIGEST, complete=False, done=1 << 24, size=1 << 25, rate=3e6)
    return SwarmAnnounce(
        peer=PeerId(f"s{number}"),
        role=PeerRole.SUPERVISOR,
        port=7061,
        host=_host(number),
        swarms=[entry],
        addresses=tag,
        ranges=True,
    )


def _host(number: int) -> str:
    return f"10.{number // 62500}.{number // 250 % 250}.{1 + number % 250}"


def check() -> str:
    """Compares the recorded broadcasts at8 to at48 with the simulator. The simulator cannot know
    when hosts begin, so it takes their starts from the lab; a second column has them all start at
    once."""
    rows = json.loads((HERE / "swarm.json").read_text())
    if lacking := [f"at{hosts}" for hosts in CHECKED if f"at{hosts}" not in rows]:
        raise SystemExit(
            f"not recorded yet: {', '.join(lacking)}; make swarm SWARM_ARGS='--table DIR --only {lacking[0]}'"
        )
    lines = ["| hosts | lab | simulator | difference | all at once | the lab's begin |", "|---|---|---|---|---|---|"]
    for hosts in CHECKED:
        row = rows[f"at{hosts}"]
        link_time, begins = row["link_time"], row["begins"]
        pieces = row["size"] * MIB // PIECE
        seen = simulate(hosts, pieces, link_time=link_time, piece_length=PIECE, begins=begins)
        at_once = simulate(hosts, pieces, link_time=link_time, piece_length=PIECE)
        assert seen is not None
        assert at_once is not None
        lines.append(
            f"| {hosts} | {row['measured']:.2f} T | {seen.ratio:.2f} T | {seen.ratio / row['measured'] - 1:+.0%} "
            f"| {at_once.ratio:.2f} T | {begins[0]:.1f} to {begins[-1]:.1f} s |"
        )
    return "\n".join(lines)


def keep_check(table: str) -> None:
    """Writes the table into docs/performance.md."""
    page = ROOT / "docs" / "performance.md"
    before, begin, rest = page.read_text().partition("<!-- check -->\n")
    _, end, after = rest.partition("<!-- end of check -->")
    assert end, "docs/performance.md has no place for it"
    page.write_text(f"{before}{begin}{table}\n{end}{after}")


def print_loads(fleets: list[int]) -> None:
    print(
        "| hosts | every | heard/s | answer, kB | first, kB | Mbit/s | known, ms | judged, ms | changed, ms "
        "| processor | new, ms |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for hosts in fleets:
        at = load(hosts)
        print(
            f"| {hosts:,} | {at.period:.0f} s | {at.announces:.0f} | {at.answer_bytes / 1000:.1f} "
            f"| {at.first_bytes / 1000:.0f} | {at.mbit:,.1f} | {at.known_secs * 1e3:.2f} | {at.judge_secs * 1e3:.1f} "
            f"| {at.change_secs * 1e3:.2f} "
            f"| {at.processor:.0%} | {at.new_secs * 1e3:.1f} |",
            flush=True,
        )


def print_shares() -> None:
    """Prints the last host's time for fewer shares, the usual number, and more, by the holders'
    capacity."""
    columns = (12, conductor.SHARES, 24, 48)
    print(f"| holders | of the links' rate | {' | '.join(f'{shares} shares' for shares in columns)} |")
    print(f"|---|---|{'---|' * len(columns)}")
    for holders, rate in ((1, 1), (1, 4), (1, 10), (3, 1), (8, 1)):
        ends = []
        for shares in columns:
            changed_settings.apply({"shares": shares})
            world = World(SHARED, crowd(CROWD), holders=holders, holder_uplink=rate, tick_secs=LINK_TIME / SHARED)
            world.piece_length = 32 * MIB // SHARED
            assert world.run(limit=10 * SHARED)
            ends.append(f"{world.tick / SHARED:.2f} T")
        print(f"| {holders} | {rate} | {' | '.join(ends)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale.large_fleet", description=__doc__)
    parser.add_argument("--check", action="store_true", help="the simulator beside the lab, and nothing else")
    parser.add_argument("--hosts", type=int, nargs="*", default=list(FLEETS), help="the sizes of the fleet")
    parser.add_argument("--pieces", type=int, help="of the bundle; default: fewer for a larger fleet")
    parser.add_argument("--state", type=Path, help="of one fleet: where a simulation that is not done is kept")
    parser.add_argument(
        "--for", dest="longest", type=float, default=math.inf, help="seconds after which it exits with 75"
    )
    parser.add_argument("--load", action="store_true", help="what masters have to do, and no simulation")
    parser.add_argument("--shares", action="store_true", help="more or fewer of them, and nothing else")
    arguments = parser.parse_args()
    if arguments.shares:
        print_shares()
        return
    if arguments.check:
        table = check()
        print(table)
        keep_check(table)
        return
    if not arguments.state:
        print_loads(arguments.hosts)
    if arguments.load:
        return
    print("\n| hosts | pieces | last host | holders sent | busiest second | longest wait for a piece | simulated in |")
    print("|---|---|---|---|---|---|---|")
    for hosts in arguments.hosts:
        pieces = arguments.pieces or FLEETS.get(hosts, 256)
        seen = simulate(hosts, pieces, state=arguments.state, longest=arguments.longest)
        if seen is None:
            print("not done yet: the same command goes on", file=sys.stderr)
            sys.exit(75)
        print(
            f"| {hosts:,} | {pieces} | {seen.ratio:.2f} T | {seen.copies:.2f} | {seen.busiest:,} "
            f"| {seen.waited:.1f} s | {seen.seconds:.0f} s |",
            flush=True,
        )


if __name__ == "__main__":
    main()
