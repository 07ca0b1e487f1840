"""Measures how long 16 hosts take to pull an image, each by its own client from its own gateway,
and from one docker-registry.

Always: no host has anything of the image when the clients begin, all at the same moment. A host is
done when its client has hashed and written all of it. T is measured in the same run.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import time
from pathlib import Path

from bench.gateway.other_servers import docker_registry, registry_config
from bench.gateway.sample_images import random_files, write_image
from bench.lab.namespaces import Host, Lab, line_of
from bench.neighbours.reference_hosts import ReferenceHosts, Roles
from bench.results import Row
from bench.stage import run
from bench.swarm.lab_run import write_source
from bench.swarm.our_cluster import Ours
from bench.swarm.peers import HTTP_PORT, broadcast, link_time, patience
from bench.swarm.scenario import Outcome, Scenario
from bench.swarm.watch import Watch

BAR = 1.15
LAYERS = 4
FULL = Scenario()
SHORT = Scenario(hosts=4, size=8)
REGISTRY = "docker-registry"


def measure(lab: Lab, directory: Path, *, short: bool) -> list[Row]:
    scenario, runs = (SHORT, 1) if short else (FULL, 3)
    source = write_source(lab.dir / "plain", scenario.size)
    layers = [random_files(f"layer-{number}", round(scenario.size) // LAYERS, seed=number) for number in range(LAYERS)]
    layout = write_image(directory / "layout", layers, "1")
    seconds = link_time(lab, scenario, source)
    ours = [_pulled(lab, scenario, layout, seconds) for _ in range(runs)]
    beside = _from_registry(lab, scenario, layout, directory, seconds)
    ratios = sorted(outcome.last_done / seconds for outcome in ours)
    if failed := [name for outcome in (*ours, beside) for name in outcome.failed]:
        raise RuntimeError(f"not done: {', '.join(failed)}")
    what = f"{scenario.size} MiB image to {scenario.hosts} hosts at {scenario.rate:g} Mbit/s, each by its own skopeo"
    return [
        Row(
            key="image-fleet",
            what=f"{what}, by T",
            ours=statistics.median(ratios),
            reference=beside.last_done / seconds,
            unit="T",
            against="one docker-registry 2.8",
            bar=BAR,
            note=f"{runs} runs, {ratios[0]:.2f}-{ratios[-1]:.2f}; T is {seconds:.2f} s",
        )
    ]


class PullingHosts(Ours):
    """A cluster that has an image, on whose hosts clients pull it."""

    def upload(self, source: Path, bundle: str) -> str:
        return super().upload(source, "image--app--1")

    def pull(self, seconds: float) -> Outcome:
        """Starts all clients and waits for them, for `seconds` at most."""
        self._lab.warm(3 * self._scenario.memory)
        clients = [self._client(host) for host in self.hosts]
        watch = Watch({host.name: host for host in self.hosts}, self._scenario.bytes, self._proof)
        sent = self._sent()
        watch.began, watch.began_at = time.monotonic(), time.time()
        for client in clients:
            assert client.stdin is not None
            client.stdin.write(b"go\n")
            client.stdin.flush()
        missing = watch.wait([host.name for host in self.hosts], seconds)
        self._lab.stop([f"client-{host.name}" for host in self.hosts])
        return Outcome(
            starts=dict.fromkeys(watch.hosts, 0.0),
            ends=watch.ends,
            seeder_copies=(self._sent() - sent) / self._scenario.bytes,
            received_copies=statistics.mean(watch.copies().values()),
            progress=watch.progress,
            failed=missing,
        )

    def _client(self, host: Host) -> subprocess.Popen[bytes]:
        home = self._proof(host.name).parent
        home.mkdir()
        name = f"client-{host.name}"
        process = self._lab.spawn(host, client_command("127.0.0.1:7070", home), name=name, stdin=subprocess.PIPE)
        line_of(process.stdout)
        return process

    def _proof(self, name: str) -> Path:
        return self.home / f"pulled-{name}" / "done"


def client_command(registry: str, home: Path) -> list[str]:
    """Returns the command of a client that says that it is ready, and pulls when it is told to."""
    script = 'echo ready; read -r go; skopeo copy --quiet --src-tls-verify=false "$1" "dir:$2/image" && : >"$2/done"'
    return ["sh", "-c", script, "sh", f"docker://{registry}/app:1", str(home)]


def _pulled(lab: Lab, scenario: Scenario, layout: Path, seconds: float) -> Outcome:
    fleet = PullingHosts(lab, scenario, layout)
    fleet.up()
    try:
        return fleet.pull(patience("", scenario) * seconds)
    finally:
        fleet.down()
        shutil.rmtree(fleet.home, ignore_errors=True)


def _from_registry(lab: Lab, scenario: Scenario, layout: Path, directory: Path, seconds: float) -> Outcome:
    home = directory / "registry"
    with docker_registry(home) as registry:
        push = ["skopeo", "copy", "--quiet", "--dest-tls-verify=false", f"oci:{layout}:1", f"docker://{registry}/app:1"]
        run(push, directory)

    def roles(stage: ReferenceHosts) -> Roles:
        address = f"{stage.seeder.address}:{HTTP_PORT}"
        serve = ["sh", "-c", 'echo ready; exec docker-registry serve "$1"', "sh", str(registry_config(home, address))]
        return serve, lambda host: client_command(address, stage.home(host))

    return broadcast(lab, scenario, layout, REGISTRY, seconds, roles)
