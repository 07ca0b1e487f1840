"""Our own cluster in the lab: real daemons on their hosts, and `torrentdist bundle distribute` as a user types it.

Always holds: the clock runs from before the command's process is started; everybody was up and idle before.
"""

from __future__ import annotations

import filecmp
import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from bench.lab import BRIDGE, Host, Lab, wait_until
from bench.swarm_scenario import Outcome, Scenario
from bench.swarm_watch import Watch
from torrentdist.dev.zookeeper import EmbeddedZooKeeper
from torrentdist.host.address import read_address

API_PORT = 7060
SWARM_PORT = 7061
BUNDLE = "swarm-1"
PATIENCE = 8.0
"""A run is over after so many link times."""


class Ours:
    def __init__(self, lab: Lab, scenario: Scenario, source: Path) -> None:
        self._lab = lab
        self._scenario = scenario
        self._source = source
        self.home = lab.dir / "ours"
        self.home.mkdir()
        self._token = self.home / "token"
        self._token.write_text(secrets.token_hex(16))
        self._token.chmod(0o600)
        self._zookeeper = EmbeddedZooKeeper(self.home / "zookeeper", config=["clientPortAddress=0.0.0.0"])
        self.holders = lab.add([f"m{n}" for n in range(scenario.holders)])
        self.hosts = lab.add([f"s{n}" for n in range(scenario.hosts)])
        self._digest = ""

    def up(self) -> None:
        """Everybody is there, the holders hold the bundle, and from then on links have their rate."""
        self._zookeeper.start()
        for host in self.holders:
            self._start(host, "master")
        for host in self.holders:
            wait_until(lambda host=host: self._tells(host), f"start of {host.name}")  # type: ignore[misc]
        wait_until(lambda: any(self._get("/leaderz", host) is not None for host in self.holders), "a leader")
        for host in self.hosts:
            self._start(host, "supervisor")
        self._write_client()
        self._digest = self.upload(self._source, BUNDLE)
        wait_until(lambda: self._supervisors() == len(self.hosts), "registration of the hosts", 120)
        for number, host in enumerate([*self.holders, *self.hosts]):
            slow = 0.1 if len(self.holders) <= number < len(self.holders) + self._scenario.slow else 1.0
            if self._scenario.rate:
                self._lab.shape(host, self._scenario.rate * slow)

    def upload(self, source: Path, bundle: str) -> str:
        """To every holder; its digest."""
        made = self._command("upload", str(source), "--id", bundle, "--min-replicas", str(len(self.holders)))
        return str(made["digest"])

    def down(self) -> None:
        members = [*self.hosts, *self.holders]
        self._lab.stop([host.name for host in members])
        self._lab.remove(members)
        self._zookeeper.kill()

    def run(self, link_time: float) -> Outcome:
        sent, cpu = self._sent(), self._cpu()
        watch = Watch({host.name: host for host in self.hosts}, self._scenario.bytes, self._published)
        starts = {host.name: number * self._scenario.apart for number, host in enumerate(self.hosts)}
        doomed = self.hosts[: round(self._scenario.killed * len(self.hosts))]
        finishing = [host.name for host in self.hosts if host not in doomed]
        told: list[subprocess.Popen[bytes]] = []
        killed: list[Host] = []

        def meanwhile() -> None:
            if self._scenario.apart:
                due = [name for name, start in starts.items() if start <= watch.now()]
                told.extend(self._distribute("--supervisors", name) for name in due[len(told) :])
            if watch.now() > link_time / 2:
                for host in [host for host in doomed if host not in killed]:
                    self._lab.cut(host)
                    self._lab.kill(host.name)
                    killed.append(host)

        if not self._scenario.apart:
            told.append(self._distribute())
        missing = watch.wait(finishing, PATIENCE * link_time + max(starts.values()), meanwhile)
        for process in told:
            process.kill()
            process.wait()
        self.hosts = [host for host in self.hosts if host not in killed]
        self._lab.remove(killed)
        return Outcome(
            starts=starts,
            ends={name: end for name, end in watch.ends.items() if name in finishing},
            seeder_copies=(self._sent() - sent) / self._scenario.bytes,
            received_copies=sum(watch.copies(host.name) for host in self.hosts) / len(self.hosts),
            progress=watch.progress,
            cpu_secs=(self._cpu() - cpu) / len(self.hosts) if not killed else 0.0,
            failed=(*missing, *(name for name in finishing if name not in missing and not self._right(name))),
        )

    def _distribute(self, *options: str) -> subprocess.Popen[bytes]:
        with (self.home / "distribute.log").open("ab") as log:
            command = self._cli("bundle", "distribute", BUNDLE, *options)
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=self.home)

    # inside

    def _data(self, host: Host) -> Path:
        return self.home / host.name

    def _published(self, name: str) -> bool:
        return os.path.lexists(self.home / name / "bundles" / self._digest)

    def _right(self, name: str) -> bool:
        """Whether what it published is what was uploaded, byte by byte."""
        content = self.home / name / "bundles" / self._digest / "content"
        return all(filecmp.cmp(file, content / file.name, shallow=False) for file in self._source.iterdir())

    def _start(self, host: Host, role: str) -> None:
        config = self.home / f"{host.name}.toml"
        masters = ", ".join(f'"http://{m.address}:{API_PORT}"' for m in self.holders)
        port = f"port = {API_PORT}" if role == "master" else ""
        config.write_text(f"""
[zookeeper]
servers = ["{BRIDGE}:{self._zookeeper.servers[0].port}"]
[api]
listen = "{host.address}"
token_file = "{self._token}"
{port}
[swarm]
port = {SWARM_PORT}
[client]
masters = [{masters}]
[{role}]
id = "{host.name}"
data_dir = "{self._data(host)}"
""")
        self._lab.spawn(host, [sys.executable, "-m", "torrentdist_cli", role, "--config", str(config)], name=host.name)

    def _tells(self, host: Host) -> bool:
        return read_address(self._data(host)) is not None

    def _write_client(self) -> None:
        masters = ", ".join(f'"http://{m.address}:{API_PORT}"' for m in self.holders)
        (self.home / "client.toml").write_text(
            f'[client]\nmasters = [{masters}]\nsupervisor = ""\ntoken_file = "{self._token}"\n'
        )

    def _cli(self, *arguments: str) -> list[str]:
        config = ["--config", str(self.home / "client.toml"), "-o", "json"]
        return [sys.executable, "-m", "torrentdist_cli", *arguments, *config]

    def _command(self, *arguments: str) -> dict[str, Any]:
        ended = subprocess.run(self._cli(*arguments), capture_output=True, cwd=self.home, text=True)
        if ended.returncode:
            raise RuntimeError(f"{arguments}: {ended.stderr}")
        answer: dict[str, Any] = json.loads(ended.stdout)
        return answer

    def _get(self, path: str, host: Host | None = None) -> str | None:
        headers = {"Authorization": f"Bearer {self._token.read_text()}"}
        address = (host or self.holders[0]).address
        try:
            with httpx.Client(trust_env=False, timeout=5.0, headers=headers) as http:
                response = http.get(f"http://{address}:{API_PORT}{path}")
                return response.text if response.status_code == 200 else None
        except httpx.HTTPError:
            return None

    def _supervisors(self) -> int:
        view = self._get("/v1/cluster")
        return len(json.loads(view)["supervisors"]) if view else 0

    def _sent(self) -> int:
        total = 0
        for host in self.holders:
            for _ in range(2):
                text = self._get("/metrics", host) or ""
                time.sleep(0.6)
            total += sum(
                int(float(line.split()[-1]))
                for line in text.splitlines()
                if line.startswith("torrentdist_swarm_uploaded_bytes_total ")
            )
        return total

    def _cpu(self) -> float:
        return sum(self._lab.cpu_secs(host.name) for host in self.hosts)
