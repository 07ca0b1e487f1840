"""Announces a large fleet of simulated peers to three real masters: what each announce costs a
master, its memory, and the time until a host that joins has its plan.

`python -m bench.scale.announced_fleet --hosts 100000`. First every peer announces once to every
master, as fast as the masters answer. Then the peers announce at the pace that masters ask of so
many, while others join.

Always: masters are real processes with a real ZooKeeper, and announces are real requests, each on a
connection of its own from the host's own address.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from bench.results import Row, table
from bench.stage import cluster_of, memory_of, torrentdist
from torrentdist.model.ids import Digest, PeerId
from torrentdist.model.wire.swarm_messages import PeerRole, SwarmAnnounce, SwarmAnswer, SwarmEntry
from torrentdist.swarm.directory.directory_values import Periods

MASTERS = 3
CONNECTIONS = 8
"""To each master, while all announce for the first time."""
PACED_SECS = 20.0
JOINERS = 40
MEMORY_BAR, JOIN_BAR = 1074.0, 2.0
PATIENT = {"swarm": {"fetching_secs": 300.0}}
"""Masters wait this long for each announce, so that they know all peers at once although these
announce one after the other."""


@dataclass
class MasterConnection:
    """Sends announces to a master, one after the other."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    token: str

    async def ask(self, announce: SwarmAnnounce) -> SwarmAnswer:
        body = msgspec.json.encode(announce)
        head = (
            f"POST /v1/swarm HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.writer.write(head.encode() + body)
        told = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next(line.partition(":")[2] for line in told.split("\r\n") if line.startswith("content-length:"))
        answer = await self.reader.readexactly(int(length))
        if " 200 " not in told.partition("\r\n")[0]:
            raise RuntimeError(f"a master refuses an announce: {answer.decode()[:300]}")
        return msgspec.json.decode(answer, type=SwarmAnswer)

    def close(self) -> None:
        self.writer.close()


@dataclass(frozen=True)
class Masters:
    urls: list[str]
    token: str
    digest: Digest
    """The bundle that the fleet fetches."""

    async def opened(self, url: str, number: int) -> MasterConnection:
        """Connects from the address of the host with this number."""
        address, own = urlsplit(url), (address_of(number), 0)
        return MasterConnection(
            *await asyncio.open_connection(address.hostname, address.port, local_addr=own), self.token
        )

    async def heard(self, url: str, number: int) -> SwarmAnswer:
        line = await self.opened(url, number)
        try:
            return await line.ask(announce_of(number, self.digest))
        finally:
            line.close()


def address_of(number: int) -> str:
    """Returns a loopback address of its own for each host."""
    return f"127.{1 + number // 62500}.{number // 250 % 250}.{1 + number % 250}"


def announce_of(number: int, digest: Digest) -> SwarmAnnounce:
    entry = SwarmEntry(digest=digest, complete=False, done=1, size=1 << 25, rate=3e6)
    return SwarmAnnounce(
        peer=PeerId(f"fleet-{number:06}"),
        role=PeerRole.SUPERVISOR,
        port=7061,
        host=address_of(number),
        swarms=[entry],
        ranges=True,
    )


async def arrive(masters: Masters, url: str, hosts: int) -> None:
    numbers = iter(range(hosts))

    async def go_on(numbers: Iterator[int]) -> None:
        for number in numbers:
            await masters.heard(url, number)

    await asyncio.gather(*(go_on(numbers) for _ in range(CONNECTIONS)))


async def keep_on(masters: Masters, url: str, hosts: int) -> None:
    """Announces for the fleet at the pace that a master asks of it."""
    pause, began = Periods().fetching(hosts) / hosts, time.monotonic()
    for turn in range(int(PACED_SECS / pause)):
        await asyncio.sleep(max(0.0, began + turn * pause - time.monotonic()))
        await masters.heard(url, turn % hosts)


async def join(masters: Masters, number: int) -> float:
    """Lets a new host announce to all masters until it has its place. Returns the seconds."""
    began = time.monotonic()
    while True:
        answers = await asyncio.gather(*(masters.heard(url, number) for url in masters.urls))
        if all(answer.swarms[masters.digest].place is not None for answer in answers):
            return time.monotonic() - began
        await asyncio.sleep(0.25)


async def joined(masters: Masters, hosts: int) -> list[float]:
    took = []
    async with asyncio.TaskGroup() as group:
        for url in masters.urls:
            group.create_task(keep_on(masters, url, hosts))
        for number in range(JOINERS):
            took.append(await join(masters, hosts + number))
            await asyncio.sleep(0.8 * PACED_SECS / JOINERS)
    return took


def processor_secs(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def measure(directory: Path, hosts: int) -> list[Row]:
    source = directory / "source"
    source.mkdir()
    (source / "data").write_bytes(b"x" * 100_000)
    with cluster_of(directory / "cluster", masters=MASTERS, supervisors=0, settings=PATIENT) as cluster:
        digest = Digest(str(torrentdist(cluster, "upload", str(source), "--id", "fleet").answer["digest"]))
        settings = tomllib.loads((cluster.dir / "client.toml").read_text(encoding="utf-8"))
        token = Path(settings["client"]["token_file"]).read_text(encoding="utf-8").strip()
        members = [cluster.member(f"master-{number + 1}") for number in range(MASTERS)]
        masters = Masters([member.url for member in members], token, digest)
        return asyncio.run(_measured(masters, [member.pid for member in members], hosts))


async def _measured(masters: Masters, pids: list[int], hosts: int) -> list[Row]:

    def spent() -> float:
        return sum(map(processor_secs, pids))

    before = spent()
    await asyncio.gather(*(arrive(masters, url, hosts) for url in masters.urls))
    arriving = spent() - before
    began, before = time.monotonic(), spent()
    took = await joined(masters, hosts)
    share = (spent() - before) / MASTERS / (time.monotonic() - began)
    memory = max(found.anon for pid in pids if (found := memory_of(pid)) is not None)
    fleet = f"{hosts:,} receivers of one bundle"
    joining = f"{fleet}: time until a host that joins has its plan from all masters, longest of {JOINERS}"
    return [
        _row("arrive", f"{fleet}: first announces in a second of a processor", MASTERS * hosts / arriving, ""),
        _row("share", f"{fleet}: processor of each master at the pace it asks for", 100 * share, "%"),
        _row("memory", f"{fleet}: memory of a master", memory, "MB", MEMORY_BAR),
        _row("join", f"{joining}; median {statistics.median(took):.3f} s", max(took), "s", JOIN_BAR),
    ]


def _row(key: str, what: str, ours: float, unit: str, bar: float | None = None) -> Row:
    return Row(key=f"fleet-{key}", what=what, ours=ours, unit=unit, bar=bar)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale.announced_fleet", description=__doc__)
    parser.add_argument("--hosts", type=int, default=100_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="torrentdist-fleet-") as directory:
        print(table(measure(Path(directory), arguments.hosts)))


if __name__ == "__main__":
    main()
