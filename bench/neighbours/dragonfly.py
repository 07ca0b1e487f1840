"""Dragonfly in the lab, without its manager: a scheduler on a link without limits, a seed peer
beside the source of the file, and a peer on each host.

Always: every setting that is not a path or an address is that of the published docker-compose, most
of which are the programs' defaults. A host is done when `dfget` has ended.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.lab.namespaces import BRIDGE, Host, wait_until
from bench.neighbours.neighbour_daemon import await_go, await_port, built, daemon, stay
from bench.neighbours.reference_hosts import ReferenceHosts, Roles

SCHEDULER_PORT = 8002
SOURCE_PORT = 8000
PEER_PORT = 4000


def dragonfly() -> Callable[[ReferenceHosts], Roles]:

    def stage(stage: ReferenceHosts) -> Roles:
        home = stage.dir / "scheduler"
        home.mkdir()
        config = _written(home / "scheduler.yaml", _scheduler(home))
        command = [
            str(built("dragonfly") / "scheduler"),
            "--config",
            config,
            "--dynconfig",
            str(home / "dynconfig.yaml"),
        ]
        stage.beside_them("dragonfly-scheduler", command)
        wait_until(lambda: stage.lab.listens(SCHEDULER_PORT), "Dragonfly's scheduler")
        here = [sys.executable, "-m", "bench.neighbours.dragonfly"]
        url = f"http://{stage.seeder.address}:{SOURCE_PORT}/{stage.file.name}"
        (seed := stage.dir / "seed").mkdir()

        def fetching(host: Host) -> list[str]:
            return [*here, "peer", host.name, host.address, str(stage.home(host)), url]

        return [*here, "seed", stage.seeder.name, stage.seeder.address, str(seed), str(stage.source)], fetching

    return stage


def run_seed(name: str, address: str, home: Path, source: Path) -> None:
    """The seed peer fetches the file from an HTTP server on the same host, when the first peer asks
    for it."""
    (home / "server").mkdir()
    with (
        daemon(_source(home / "server", address, source), home / "server"),
        daemon(_dfdaemon(name, address, home, seed=True), home),
    ):
        await_port(address, SOURCE_PORT)
        await_port(address, PEER_PORT)
        await_go()
        stay()


def _source(home: Path, address: str, source: Path) -> list[str]:
    """Returns the command of the source. Dragonfly asks it for ranges, which Python's own server
    does not know."""
    config = home / "nginx.conf"
    config.write_text(f"""
daemon off; user root; pid {home}/nginx.pid; error_log stderr; events {{}}
http {{ access_log off; sendfile on; client_body_temp_path {home}/body;
  server {{ listen {address}:{SOURCE_PORT}; root {source}; }} }}
""")
    return ["nginx", "-c", str(config)]


def run_peer(name: str, address: str, home: Path, url: str) -> None:
    with daemon(_dfdaemon(name, address, home, seed=False), home):
        await_port(address, PEER_PORT)
        await_go()
        dfget = str(built("dragonfly-client") / "dfget")
        command = [
            dfget,
            url,
            "--output",
            str(home / "data"),
            "--endpoint",
            str(home / "dfdaemon.sock"),
            "--no-progress",
        ]
        if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr).returncode == 0:
            (home / "done").touch()
        stay()


def _dfdaemon(name: str, address: str, home: Path, *, seed: bool) -> list[str]:
    settings = {
        "host": {"hostname": name, "ip": address},
        "server": {"pluginDir": f"{home}/plugins/", "cacheDir": f"{home}/cache/"},
        "download": {"server": {"socketPath": f"{home}/dfdaemon.sock"}},
        "upload": {"server": {"port": PEER_PORT}},
        "seedPeer": {"enable": seed, "type": "super"},
        "storage": {"dir": f"{home}/storage/"},
    }
    config = _written(home / "dfdaemon.yaml", settings)
    known = _written(home / "dynconfig.yaml", {"scheduler": {"addrs": [f"{BRIDGE}:{SCHEDULER_PORT}"]}})
    daemon_of = str(built("dragonfly-client") / "dfdaemon")
    return [daemon_of, "--config", config, "--dynconfig", known, "--log-dir", f"{home}/logs", "--console"]


def _scheduler(home: Path) -> dict[str, Any]:
    return {
        "server": {
            "advertiseIP": BRIDGE,
            "listenIP": "0.0.0.0",
            "port": SCHEDULER_PORT,
            "logDir": f"{home}/logs",
            "pluginDir": f"{home}/plugins",
        },
        "scheduler": {"algorithm": "default", "retryBackToSourceLimit": 3, "retryLimit": 5, "retryInterval": "1s"},
        "job": {"enable": False},
        "console": True,
    }


def _written(path: Path, settings: dict[str, Any]) -> str:
    path.write_text(json.dumps(settings))  # YAML, too
    return str(path)


def main(role: str, name: str, address: str, home: str, what: str) -> None:
    if role == "seed":
        run_seed(name, address, Path(home), Path(what))
    else:
        run_peer(name, address, Path(home), what)


if __name__ == "__main__":
    main(*sys.argv[1:])
