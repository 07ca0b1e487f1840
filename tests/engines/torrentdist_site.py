"""torrentdist on the engines' hosts: masters, a supervisor on each host, and the commands of a user
of one of them.

Always: real daemons and commands, plain HTTP with a token; each supervisor's gateway is
127.0.0.1:7070 of its own host, its data is on its host's disk, and its label `kind` is the first
letter of its host's name.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engines.engine_hosts import EngineLab

from bench.lab.namespaces import BRIDGE, Host, wait_until
from torrentdist.cluster.session.founding import found_at
from torrentdist.dev.embedded_zookeeper import EmbeddedZooKeeper
from torrentdist.host.process.daemon_address import read_address
from torrentdist.model.configuration.config import ZooKeeperConfig

API_PORT = 7060
SWARM_PORT = 7061
DATA = "/srv/torrentdist"
IDS_DIR = f"{DATA}/ids"
PROGRAM = [sys.executable, "-m", "torrentdist_cli"]
START_SECS = 400.0
SESSION_SECS = 40
"""The longest that ZooKeeper grants. A restarted supervisor keeps its workers if it is back within
a quarter of it, which takes seconds beside the engines' daemons."""


class TorrentdistSite:
    def __init__(self, lab: EngineLab, name: str, masters: Sequence[Host], supervisors: Sequence[Host]) -> None:
        self._lab = lab
        self._name = name
        self.masters = masters
        self.supervisors = supervisors
        self.settings = ""
        """More of the daemons' configuration."""
        self.home = lab.shared / name
        self.home.mkdir()
        self._inside = Path("/mnt", name)
        self._token = self.home / "token"
        self._token.write_text(secrets.token_hex(16))
        self._token.chmod(0o600)
        self._zookeeper = EmbeddedZooKeeper(lab.dir / f"{name}-zookeeper", config=["clientPortAddress=0.0.0.0"])
        (self.home / "user.conf.toml").write_text(
            f"[client]\nmasters = {json.dumps(self._urls())}\n"
            f'token_in_the_clear = true\ntoken_file = "{self._inside}/token"\n'
            f'[supervisor]\nids_dir = "{IDS_DIR}"\n'
        )

    def up(self) -> None:
        self._zookeeper.start()
        asyncio.run(found_at(ZooKeeperConfig(servers=self._zookeeper.addresses), 60.0))
        for host in self.masters:
            self.start(host, "master")
        for host in self.supervisors:
            self.start(host, "supervisor")
        for host in [*self.masters, *self.supervisors]:
            wait_until(lambda host=host: self._tells(host), f"start of {host.name}", START_SECS)  # type: ignore[misc]
        wait_until(lambda: self.leader() is not None, "a leader", START_SECS)
        wait_until(lambda: self._registered() == len(self.supervisors), "supervisors", START_SECS)

    def down(self) -> None:
        names = [self.process(host) for host in [*self.masters, *self.supervisors]]
        self._lab.stop([name for name in names if self._lab.runs(name)])
        self._zookeeper.kill()

    def start(self, host: Host, role: str) -> None:
        config = self.home / f"{host.name}.toml"
        port = f"port = {API_PORT}" if role == "master" else ""
        of_role = f'ids_dir = "{IDS_DIR}"\nlabels = {{ kind = "{host.name[0]}" }}' if role == "supervisor" else ""
        config.write_text(f"""
[zookeeper]
servers = ["{BRIDGE}:{self._zookeeper.servers[0].port}"]
session_timeout_secs = {SESSION_SECS}
[api]
listen = "{host.address}"
insecure_listen = true
token_file = "{self._inside}/token"
{port}
[swarm]
port = {SWARM_PORT}
[client]
masters = {json.dumps(self._urls())}
[{role}]
id = "{host.name}"
data_dir = "{DATA}/{role}"
{of_role}
{self.settings}""")
        command = [*PROGRAM, role, "--config", str(self._inside / config.name)]
        self._lab.start(host, command, name=self.process(host), variables={})

    def process(self, host: Host) -> str:
        """Returns the name of a host's daemon in the lab."""
        return f"{self._name}-{host.name}"

    def restart(self, host: Host, *, keep: bool = True) -> None:
        """Kills the supervisor of a host if it runs, and starts it again; without its disk, if it
        is not to be kept."""
        if self._lab.runs(self.process(host)):
            self._lab.kill(self.process(host))
        disk = self._lab.srv(host) / "torrentdist"
        subprocess.run(["rm", "-rf", str(disk / "supervisor/daemon.json" if keep else disk)], check=True)
        self.start(host, "supervisor")
        wait_until(lambda: self._tells(host), f"start of {host.name}", START_SECS)

    def lose_disk(self, host: Host) -> None:
        """Kills the master of a host, and starts it with an empty disk."""
        self._lab.kill(self.process(host))
        subprocess.run(["rm", "-rf", str(self._lab.srv(host) / "torrentdist/master")], check=True)
        self.start(host, "master")
        wait_until(lambda: self._tells(host), f"start of {host.name}", START_SECS)

    def command(self, host: Host, *arguments: str) -> dict[str, Any]:
        """Runs a command of torrentdist on a host, and returns its answer."""
        ended = self.tried(host, *arguments)
        if ended.returncode:
            raise RuntimeError(f"{arguments}: {ended.stdout}{ended.stderr}")
        answer: dict[str, Any] = json.loads(ended.stdout)
        return answer

    def tried(self, host: Host, *arguments: str) -> subprocess.CompletedProcess[str]:
        options = ["--config", str(self._inside / "user.conf.toml")]
        options += [] if "--quiet" in arguments else ["--output", "json"]
        return self._lab.call(host, [*PROGRAM, *arguments, *options])

    def of_user(self, *arguments: str) -> list[str]:
        """Returns a user's command, with the configuration that knows this site."""
        return [*PROGRAM, arguments[0], "--config", str(self._inside / "user.conf.toml"), *arguments[1:]]

    def leader(self) -> Host | None:
        asked = self.tried(self._up(), "ha", "leader", "--quiet")
        return next((host for host in self.masters if host.name == asked.stdout.strip()), None)

    def _up(self) -> Host:
        return next(host for host in self.masters if self._lab.runs(self.process(host)))

    def _registered(self) -> int:
        view = self.tried(self._up(), "cluster")
        return len(json.loads(view.stdout)["supervisors"]) if not view.returncode else -1

    def _urls(self) -> list[str]:
        return [f"http://{host.address}:{API_PORT}" for host in self.masters]

    def _tells(self, host: Host) -> bool:
        role = "master" if host in self.masters else "supervisor"
        return read_address(self._lab.srv(host) / "torrentdist" / role) is not None
