"""Three ZooKeeper servers and three masters, each on a host of its own, with a network that can
break in every way.

tests/integration/test_partitions.py runs `python -m partitions DIR`. It enters a private network,
prints what it saw as JSON, and leaves nothing behind. A direction is cut silently: packets go to an
address that no host has.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
from chaos.oracle import Sighting, judge_sightings, judge_transactions, judge_words, words_of
from chaos.txnlog import committed

from bench.lab.namespaces import Host, Lab, enter, wait_until
from torrentdist.cluster.session.founding import found_at
from torrentdist.dev.embedded_zookeeper import ZooKeeperServer
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.testing.sample_trees import some_bytes, write_tree

SESSION_SECS = 3.0
PORT = 7060
CLIENT_PORT = 2181


class Hosts:
    """The cluster, and the ways to break its network."""

    def __init__(self, directory: Path) -> None:
        self.lab = Lab(directory)
        self.dir = directory
        self.keepers = self.lab.add(["z1", "z2", "z3"])
        self.masters = {host.name: host for host in self.lab.add(["m1", "m2", "m3"])}
        self.token = directory / "token"
        self.token.write_text(secrets.token_hex(16))
        self.token.chmod(0o600)
        headers = {"Authorization": f"Bearer {self.token.read_text()}"}
        self.http = httpx.Client(trust_env=False, timeout=1.0, headers=headers)
        self.servers = [self._server(number, host) for number, host in enumerate(self.keepers, 1)]
        self.sightings: list[Sighting] = []
        self._over = threading.Event()
        self._watching = [threading.Thread(target=self._watch, args=(name,)) for name in self.masters]

    def _server(self, number: int, host: Host) -> ZooKeeperServer:
        members = [
            f"server.{n}={other.address}:2888:3888;{other.address}:{CLIENT_PORT}"
            for n, other in enumerate(self.keepers, 1)
        ]
        within = ["ip", "netns", "exec", host.name]
        directory = self.dir / host.name
        return ZooKeeperServer(
            directory, CLIENT_PORT, number=number, config=[*members, "cnxTimeout=1"], host=host.address, within=within
        )

    def up(self) -> None:
        for server in self.servers:
            server.spawn()
        for server in self.servers:
            wait_until(server.serves, f"ZooKeeper at {server.address}")
        addresses = [server.address for server in self.servers]
        asyncio.run(found_at(ZooKeeperConfig(servers=addresses), 60.0))
        urls = ", ".join(f'"http://{host.address}:{PORT}"' for host in self.masters.values())
        (self.dir / "client.toml").write_text(
            f'[client]\nmasters = [{urls}]\nsupervisor = ""\ntoken_file = "{self.token}"\n'
            "token_in_the_clear = true\ndeadline_secs = 30\n"
        )
        for host in self.masters.values():
            self._start(host)
        for thread in self._watching:
            thread.start()
        wait_until(lambda: all(self.says(name, "/readyz") for name in self.masters), "three ready masters")
        self.leader()

    def _start(self, host: Host) -> None:
        servers = ", ".join(f'"{keeper.address}:{CLIENT_PORT}"' for keeper in self.keepers)
        config = self.dir / f"{host.name}.toml"
        config.write_text(f"""
[zookeeper]
servers = [{servers}]
session_timeout_secs = {SESSION_SECS}
operation_timeout_secs = 3.0
[api]
listen = "{host.address}"
port = {PORT}
token_file = "{self.token}"
insecure_listen = true
[replication]
sync_secs = 86400
[master]
id = "{host.name}"
data_dir = "{self.dir / host.name}"
""")
        self.lab.spawn(
            host, [sys.executable, "-m", "torrentdist_cli", "master", "--config", str(config)], name=host.name
        )

    def down(self) -> None:
        self._over.set()
        for thread in self._watching:
            thread.join()
        self.lab.stop(list(self.masters))
        for server in self.servers:
            server.kill()
        self.http.close()

    # looking

    def _watch(self, master: str) -> None:
        while not self._over.is_set():
            began = time.time()
            if self.says(master, "/leaderz"):
                self.sightings.append(Sighting(master, began, time.time()))
            time.sleep(0.2)

    def says(self, master: str, path: str) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return self.http.get(f"http://{self.masters[master].address}:{PORT}{path}").status_code == 200
        return False

    def leader(self, among: Sequence[str] = ()) -> str:
        """Waits until one of these masters leads, and returns the leader."""
        found: list[str] = []

        def look() -> bool:
            found[:] = [name for name in among or self.masters if self.says(name, "/leaderz")]
            return bool(found)

        wait_until(look, f"a leader among {among or 'all'}", 30.0)
        return found[0]

    def command(self, *arguments: str) -> Any:
        command = [sys.executable, "-m", "torrentdist_cli", *arguments, "--config", str(self.dir / "client.toml")]
        ended = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, timeout=60)
        if ended.returncode:
            raise RuntimeError(f"{arguments}: {ended.stderr}")
        return json.loads(ended.stdout)

    def upload(self, name: str, seed: int, replicas: int) -> None:
        """Returns once that many masters hold the bundle."""
        write_tree(self.dir / name, {"data.bin": some_bytes(200_000, seed)})
        view = self.command("upload", str(self.dir / name), "--id", name, "--min-replicas", str(replicas))
        if view["achieved"] is not True:
            raise RuntimeError(f"{name}: {view}")

    # breaking

    @contextlib.contextmanager
    def cut(self, *ways: tuple[Sequence[Host], Sequence[Host]]) -> Iterator[None]:
        """Silently loses what the first hosts of each pair send to the second ones."""
        pairs = [(a, b) for froms, tos in ways for a in froms for b in tos]
        for a, b in pairs:
            self.lab.lose(a, b)
        try:
            yield
        finally:
            for a, b in pairs:
                self.lab.carry(a, b)

    def both_ways(self, some: Sequence[Host], others: Sequence[Host]) -> contextlib.AbstractContextManager[None]:
        return self.cut((some, others), (others, some))

    def whole(self) -> None:
        wait_until(lambda: all(self.says(name, "/readyz") for name in self.masters), "all are ready again", 30.0)
        self.leader()


def story(hosts: Hosts) -> dict[str, Any]:
    """Splits the hosts in halves: the leader with one server here, the others there."""
    told: dict[str, Any] = {}
    began = time.monotonic()
    lone = hosts.masters[hosts.leader()]
    here, there = [lone, hosts.keepers[0]], [*hosts.keepers[1:], *(m for m in hosts.masters.values() if m is not lone)]
    with hosts.both_ways(here, there):
        third = hosts.leader([name for name in hosts.masters if name != lone.name])
        hosts.upload("halves", 3, replicas=2)
        told["the smaller half has no leader"] = not hosts.says(lone.name, "/leaderz")
    hosts.whole()
    told["leaders"] = [lone.name, third]
    listed = {view["id"]: view["replicas"] for view in hosts.command("bundle", "ls")}
    wait_until(lambda: all(v["replicas"] == 3 for v in hosts.command("bundle", "ls")), "three copies of all", 30.0)
    told["bundles"] = sorted(listed)
    told["seconds"] = round(time.monotonic() - began, 1)
    return told


def judge(hosts: Hosts) -> list[str]:
    judgement = judge_transactions(committed([server.directory / "data" for server in hosts.servers]))
    words = [word for m in hosts.masters for word in words_of(m, hosts.lab.log_of(m).encode().splitlines())]
    return [
        *judgement.findings,
        *judge_sightings(judgement.reigns, hosts.sightings, stolen=(), lease_secs=SESSION_SECS),
        *judge_words(judgement.reigns, words),
    ]


def main() -> int:
    enter("partitions", sys.argv[1:])
    hosts = Hosts(Path(sys.argv[1]))
    try:
        hosts.up()
        told = story(hosts)
    finally:
        hosts.down()
    print(json.dumps({**told, "findings": judge(hosts)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
