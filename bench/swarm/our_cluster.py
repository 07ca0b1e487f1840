"""Our cluster in the lab: real daemons on their hosts, and `torrentdist bundle distribute`.

Always: the clock starts before the command's process. All daemons were up and idle before.
"""

from __future__ import annotations

import asyncio
import compileall
import filecmp
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx

from bench.lab.namespaces import BRIDGE, ROOT, Host, Lab, environment, line_of, wait_until, within
from bench.swarm.cluster_access import ClusterAccess, InTheClear, MutualTls
from bench.swarm.scenario import MIB, Outcome, Scenario
from bench.swarm.story import LateStarts, OneCopyOut, PowerCut
from bench.swarm.watch import Watch, settled
from torrentdist.cluster.session.founding import found_at
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.host.process.daemon_address import read_address
from torrentdist.model.configuration.config import ZooKeeperConfig

API_PORT = 7060
SWARM_PORT = 7061
BUNDLE, SECOND = "swarm-1", "swarm-2"
GATEWAY = "http://127.0.0.1:7070"
UPLOADED, DOWNLOADED = "torrentdist_swarm_uploaded_bytes_total", "torrentdist_swarm_downloaded_bytes_total"
PATIENCE = 8.0
"""A run is given up after this many link times."""
SLOW_PATIENCE = 20.0
"""The same for runs with hosts whose links are ten times slower."""
LEAST_PATIENCE_SECS = 20.0
"""No run is given up before this: without limits a link time is some milliseconds."""


LOCAL = "torrentdist.distributor.local:LocalCodeDistributor"
BATCH = 8
"""Number of hosts that start at the same time. More would compete for this machine's processors
until they time out."""


class Ours:
    def __init__(self, lab: Lab, scenario: Scenario, source: Path, *, distributor: str = "", changed: str = "") -> None:
        """`distributor`: a plug-in to use instead of the swarm, which needs more link times.
        `changed`: settings that differ from ours, for bench/lab/changed_settings.py."""
        program = (
            ["-m", "bench.lab.changed_settings", changed, "torrentdist_cli"] if changed else ["-m", "torrentdist_cli"]
        )
        self._program = [sys.executable, *program]
        self._lab = lab
        self._scenario = scenario
        self._source = source
        self._distributor = distributor
        self.home = lab.dir / "ours"
        self.home.mkdir()
        self._token = self.home / "token"
        self._token.write_text(secrets.token_hex(16))
        self._token.chmod(0o600)
        self._access: ClusterAccess = MutualTls(self.home / "ca") if scenario.tls else InTheClear()
        self._zookeeper = EmbeddedZooKeeper(self.home / "zookeeper", config=["clientPortAddress=0.0.0.0"])
        zones = scenario.zone_names
        for zone in zones:
            lab.add_zone(zone)
        self.holders = lab.add_in(zones[0] if zones else "br0", [f"m{n}" for n in range(scenario.holders)])
        self._zones: dict[str, str] = {}
        """The zone of each host."""
        for place, zone in enumerate(zones):
            self._zones |= {f"s{n}": zone for n in range(place, scenario.hosts, len(zones))}
            lab.add_in(zone, [name for name, its in self._zones.items() if its == zone])
        if not zones:
            lab.add([f"s{n}" for n in range(scenario.hosts)])
        self.hosts = lab.hosts(f"s{n}" for n in range(scenario.hosts))
        self._false = lab.add([f"x{n}" for n in range(scenario.liars)])
        self._digest = ""
        self._second = ""
        """Digest of the bundle beside it. Empty: there is none."""

    def up(self) -> None:
        """Starts all daemons, lets the holders have the bundle, and then limits the links."""
        for package in ("torrentdist", "cli"):  # as in an installation
            compileall.compile_dir(ROOT / package, quiet=1)
        self._zookeeper.start()
        asyncio.run(found_at(ZooKeeperConfig(servers=self._zookeeper.addresses), 60.0))
        for host in self.holders:
            self._start(host, "master")
        for host in self.holders:
            wait_until(lambda host=host: self._tells(host), f"start of {host.name}")  # type: ignore[misc]
        wait_until(lambda: any(self._get("/leaderz", host) is not None for host in self.holders), "a leader")
        self._write_client()
        self._digest = self.upload(self._source, BUNDLE)
        if self._scenario.beside:
            self._second = self.upload(self._beside(), SECOND)
        if not self._scenario.alone:
            for first in range(0, len(self.hosts), BATCH):
                batch = self.hosts[first : first + BATCH]
                for host in batch:
                    self._start(host, "supervisor")
                there = first + len(batch)
                wait_until(lambda there=there: self._supervisors() >= there, "registration of the hosts", 120)  # type: ignore[misc]
        if self._false:
            self._start_false()
        slow = self.hosts[: self._scenario.slow]
        if self._scenario.rate:
            for host in [*self.hosts, *self._false]:
                self._lab.shape(host, self._scenario.rate * (0.1 if host in slow else 1.0))
            for host in self.holders:
                self._lab.shape(host, self._scenario.holder_link)
        for zone in self._scenario.zone_names if self._scenario.border else ():
            self._lab.shape_border(zone, self._scenario.border)

    def upload(self, source: Path, bundle: str) -> str:
        """Uploads to every holder, and returns the digest."""
        made = self._command("upload", str(source), "--id", bundle, "--min-replicas", str(len(self.holders)))
        return str(made["digest"])

    def down(self) -> None:
        members = [*self.hosts, *self.holders, *self._false]
        self._lab.stop([host.name for host in members])
        self._lab.remove(members)
        for zone in self._scenario.zone_names:
            self._lab.remove_zone(zone)
        self._zookeeper.kill()

    def run(self, link_time: float, patience: float = PATIENCE) -> Outcome:
        self._lab.warm(self._scenario.memory)
        sent, came = self._sent(), self._came()
        watch = Watch({host.name: host for host in self.hosts}, self._scenario.bytes, self._published)
        second = Watch(watch.hosts, self._scenario.bytes, lambda name: self._published(name, self._second))
        starts = {host.name: number * self._scenario.apart for number, host in enumerate(self.hosts)}
        told: list[subprocess.Popen[bytes]] = []
        late = LateStarts(starts if self._scenario.apart else {}, lambda name: told.append(self._distribute(name)))
        doomed = self.hosts[: round(self._scenario.killed * len(self.hosts))]
        death = PowerCut(self._lab, doomed, lambda watch: watch.now() > link_time / 2)
        leave = PowerCut(self._lab, self.holders if self._scenario.leaving else [], self._one_copy_out())

        def meanwhile() -> None:
            for story in (late, death, leave):
                story.step(watch)
            if self._second:
                second.look()

        cpu = self._cpu()
        told += self._begin(link_time)
        slow = [host.name for host in self.hosts[: self._scenario.slow]]
        finishing = [host.name for host in self.hosts if host not in doomed]
        longest = max(LEAST_PATIENCE_SECS, patience * link_time) + max(starts.values())
        missing = watch.wait([name for name in finishing if name not in slow], longest, meanwhile)
        used = self._cpu()
        missing += watch.wait(slow, SLOW_PATIENCE * link_time)
        missing += second.wait(finishing if self._second else [], longest)
        for process in told:
            process.kill()
            process.wait()
        copies = watch.copies()
        outcome = Outcome(
            starts=starts,
            ends={name: max(end, second.ends.get(name, 0.0)) for name, end in watch.ends.items() if name in finishing},
            speeds=_mean(later / watch.ends[name] for name, later in second.ends.items() if name in watch.ends)
            * (self._scenario.size / self._scenario.beside if self._second else 0.0),
            seeder_copies=(leave.sent or self._sent() - sent) / self._scenario.bytes,
            received_copies=sum(copies[name] for name in finishing) / len(finishing),
            progress=watch.progress,
            cpu_secs=_mean(used[name]["all"] - cpu[name]["all"] for name in used if name in cpu),
            python_secs=_mean(used[name]["first"] - cpu[name]["first"] for name in used if name in cpu),
            failed=(*missing, *(name for name in finishing if name not in missing and not self._right(name))),
            aside=tuple(slow),
            duplicates=self._duplicates([host for host in self.hosts if host.name in finishing]),
            into_zones={zone: (now - came[zone]) / self._scenario.bytes for zone, now in self._came().items()},
            ordered_at=self._ordered_at() - watch.began_at if told and self.holders[0] not in leave.dead else 0.0,
            cuts={**death.cuts(), **leave.cuts()},
        )
        self._bury([*death.dead, *leave.dead])
        return outcome

    def _begin(self, link_time: float) -> list[subprocess.Popen[bytes]]:
        """Lets all hosts fetch, except those that start one by one. Returns the commands."""
        if self._scenario.alone:
            self._download_everywhere()
            return []
        if self._second:
            speed = self._scenario.bytes / link_time
            first = speed / self._scenario.both
            return [self._distribute(rate=first), self._distribute(bundle=SECOND, rate=speed - first)]
        return [] if self._scenario.apart else [self._distribute()]

    def _ordered_at(self) -> float:
        return float(self._ask(f"/v1/bundles/{BUNDLE}/distribution").json()["begun_at"])

    def _came(self) -> dict[str, int]:
        return {zone: self._lab.came_into(zone) for zone in self._scenario.zone_names}

    def _bury(self, dead: list[Host]) -> None:
        self._lab.remove(dead)
        self.hosts = [host for host in self.hosts if host not in dead]
        self.holders = [host for host in self.holders if host not in dead]

    def _distribute(self, *hosts: str, bundle: str = BUNDLE, rate: float = 0.0) -> subprocess.Popen[bytes]:
        options = ["--supervisors", ",".join(hosts)] if hosts else []
        options += ["--rate", str(int(rate))] if rate else []
        with (self.home / "distribute.log").open("ab") as log:
            command = self._cli("bundle", "distribute", bundle, *options)
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env=environment())

    def _download_everywhere(self) -> None:
        for host in self.hosts:
            (self.home / host.name).mkdir()
            command = self._cli("download", BUNDLE, str(self.home / host.name / "dest"))
            self._lab.spawn(host, command, name=host.name)

    # inside

    def _data(self, host: Host) -> Path:
        return self.home / host.name

    def _one_copy_out(self) -> OneCopyOut:
        file = next(self._source.iterdir())
        inside = Path("objects") / self._digest / "content" / file.name
        return OneCopyOut(
            file, lambda: [path for h in self.hosts if (path := self._data(h) / inside).exists()], self.holders
        )

    def _beside(self) -> Path:
        """Makes the second bundle, of random bytes."""
        place = self.home / "beside"
        place.mkdir()
        (place / "data").write_bytes(os.urandom(round(self._scenario.beside * MIB)))
        return place

    def _published(self, name: str, digest: str = "") -> Path:
        """Returns a path that exists only after the host has published the bundle."""
        home = self.home / name
        return home / "dest" if self._scenario.alone else home / "bundles" / (digest or self._digest)

    def _right(self, name: str) -> bool:
        """Whether the host published exactly what was uploaded, byte by byte."""
        content = self._published(name) / ("" if self._scenario.alone else "content")
        files = [path for path in self._source.rglob("*") if path.is_file()]
        pairs = [(file, content / file.relative_to(self._source)) for file in files]
        if self._second:
            pairs.append((self.home / "beside/data", self._published(name, self._second) / "content/data"))
        return all(there.is_file() and filecmp.cmp(file, there, shallow=False) for file, there in pairs)

    def _start(self, host: Host, role: str) -> None:
        config = self.home / f"{host.name}.toml"
        port = f"port = {API_PORT}" if role == "master" else ""
        zone = self._zones.get(host.name, "") if not self._scenario.blind else ""
        label = f'labels = {{ zone = "{zone}" }}' if zone else ""
        table = f'zones = {{ "{host.address}/32" = "{self._scenario.zone_names[0]}" }}' if self._zones else ""
        plugin = f'[codedistributor]\nclass = "{self._distributor}"\n' if self._distributor else ""
        config.write_text(f"""
[zookeeper]
servers = ["{BRIDGE}:{self._zookeeper.servers[0].port}"]
[api]
listen = "{host.address}"
token_file = "{self._token}"
{port}
{self._access.daemon_settings(host, role)}
[swarm]
port = {SWARM_PORT}
{table if role == "master" and not self._scenario.blind else ""}
[client]
masters = {json.dumps(self._masters())}
[{role}]
id = "{host.name}"
data_dir = "{self._data(host)}"
{label}
{plugin}""")
        self._lab.spawn(host, [*self._program, role, "--config", str(config)], name=host.name)

    def _start_false(self) -> None:
        """Starts the lying and stalling peers in turn. They are in the directory before any host
        fetches."""
        told = self.home / "false.json"
        told.write_text(json.dumps({"masters": self._masters(), "token": self._token.read_text()}))
        metafile = self.home / "metafile"
        metafile.write_bytes(self._ask(f"/v1/bundles/{BUNDLE}/metafile").content)
        for number, host in enumerate(self._false):
            kind = ("lie", "stall")[number % 2]
            arguments = [kind, str(told), host.name, host.address, str(SWARM_PORT), str(metafile)]
            command = [sys.executable, "-m", "bench.lab.lying_peer", *arguments]
            process = self._lab.spawn(host, command, name=host.name, stdin=subprocess.PIPE)
            line_of(process.stdout)

    def _tells(self, host: Host) -> bool:
        return read_address(self._data(host)) is not None

    def _write_client(self) -> None:
        (self.home / "client.toml").write_text(
            f'[client]\nmasters = {json.dumps(self._masters())}\nsupervisor = ""\ntoken_file = "{self._token}"\n'
            f"{self._access.client_settings()}"
        )

    def _masters(self) -> list[str]:
        return [self._url(host) for host in self.holders]

    def _url(self, host: Host) -> str:
        return f"{self._access.scheme}://{host.address}:{API_PORT}"

    def _cli(self, *arguments: str) -> list[str]:
        config = ["--config", str(self.home / "client.toml"), "--output", "json"]
        return [*self._program, *arguments, *config]

    def _command(self, *arguments: str) -> dict[str, Any]:
        ended = subprocess.run(self._cli(*arguments), capture_output=True, cwd=ROOT, text=True, env=environment())
        if ended.returncode:
            raise RuntimeError(f"{arguments}: {ended.stderr}")
        answer: dict[str, Any] = json.loads(ended.stdout)
        return answer

    def _get(self, path: str, host: Host | None = None) -> str | None:
        try:
            response = self._ask(path, host)
        except httpx.HTTPError:
            return None
        return response.text if response.status_code == 200 else None

    def _ask(self, path: str, host: Host | None = None) -> httpx.Response:
        with self._http() as http:
            return http.get(self._url(host or self.holders[0]) + path)

    def _http(self) -> httpx.Client:
        return self._access.http({"Authorization": f"Bearer {self._token.read_text()}"})

    def _supervisors(self) -> int:
        view = self._get("/v1/cluster")
        return len(json.loads(view)["supervisors"]) if view else 0

    def _sent(self) -> int:
        """Returns the payload that the holders have sent by their own count, or the bytes that went
        up their links if they have no swarm."""
        if self._distributor:
            return sum(host.sent() for host in self.holders)
        with self._http() as http:
            # Each request makes the daemon read its counters, and a later answer has them.
            return settled(lambda: int(sum(_metric(http, url, UPLOADED) for url in self._masters())))

    def _duplicates(self, hosts: list[Host]) -> float:
        """Returns the part of the bundle that libtorrent received more than once, as supervisors
        count it."""
        told = [within(host.name, _downloaded) for host in hosts if self._lab.runs(host.name)]
        return _mean(max(0.0, bytes_ / self._scenario.bytes - 1) for bytes_ in told if bytes_)

    def _cpu(self) -> dict[str, dict[str, float]]:
        return {host.name: self._lab.cpu_secs(host.name) for host in self.hosts if self._lab.runs(host.name)}


def _downloaded() -> float:
    """Returns what the supervisor of this network counts."""
    with httpx.Client(trust_env=False, timeout=5.0) as http:
        return _metric(http, GATEWAY, DOWNLOADED)


def _metric(http: httpx.Client, url: str, name: str) -> float:
    """Returns the metric; 0 if nothing answers, as where there are no supervisors."""
    try:
        text = http.get(f"{url}/metrics").text
    except httpx.HTTPError:
        return 0.0
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith((f"{name} ", f"{name}{{")))


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0
