"""The other programs in the lab, and one plain HTTP transfer over one link, the unit of time.

Always: all are started and idle before the clock, and begin at the same moment. Each has the
settings that served it best here; SETTINGS lists them. Never: give a program less than its users
would.
"""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import libtorrent as lt

from bench.lab.namespaces import BRIDGE, Host, Lab, line_of, wait_until
from bench.neighbours.dragonfly import dragonfly
from bench.neighbours.kraken import TUNED as TUNED_KRAKEN
from bench.neighbours.kraken import kraken
from bench.neighbours.neighbour_daemon import built
from bench.neighbours.reference_hosts import ReferenceHosts, Roles
from bench.stage import BARE
from bench.swarm.scenario import Outcome, Scenario
from bench.swarm.watch import Watch

HTTP_PORT = 8000
TRACKER_PORT = 6969
BARE_PORT = 6881
PATIENCE = 8.0
TUNED_PIECE = 32 * 1024
ARIA2 = (
    "--seed-ratio=0.0 --bt-max-peers=0 --bt-tracker-interval=5 --file-allocation=none --enable-dht=false "
    "--bt-enable-lpd=false --enable-peer-exchange=true --disable-ipv6=true --listen-port=6881 --no-conf "
    "--console-log-level=error --summary-interval=0 --show-console-readout=false"
)
NGINX = "sendfile on; tcp_nopush on; one worker for each processor"
NEEDS = {"aria2": ("aria2c", "opentracker"), "nginx": ("nginx",)}
"""Programs that a machine may lack. scripts/lab-peers installs them."""
BUILT = {"kraken": ("kraken",), "kraken-tuned": ("kraken",), "dragonfly": ("dragonfly", "dragonfly-client")}
"""Programs that scripts/neighbours builds."""


def libtorrent(kind: str, piece: int = 0) -> Callable[[ReferenceHosts], Roles]:
    """`kind` is one of bench/bare_libtorrent.py; `piece`: 0 for libtorrent's own length."""

    def stage(stage: ReferenceHosts) -> Roles:
        metafile = stage.dir / "metafile"
        _write_metafile(stage.file, metafile, lt.create_torrent.v2_only, piece)

        def process(role: str, home: Path, host: Host, *peers: str) -> list[str]:
            addresses = [f"{peer}:{BARE_PORT}" for peer in (host.address, *peers)]
            return [sys.executable, str(BARE), role, kind, str(metafile), str(home), *addresses]

        seeding = process("seed", stage.source, stage.seeder)
        return seeding, lambda host: process("wait", stage.home(host), host, *stage.others(host))

    return stage


def aria2(stage: ReferenceHosts) -> Roles:
    """Runs aria2 with a metafile of version 1. Its peers come from opentracker, on a host whose
    link is not limited."""
    metafile, hook, offered = stage.dir / "metafile", stage.dir / "hook", stage.dir / "offered"
    tracker = f"http://{BRIDGE}:{TRACKER_PORT}/announce"
    digest = _write_metafile(stage.file, metafile, lt.create_torrent.v1_only, 0, tracker)
    (stage.dir / "whitelist").write_text(f"{digest}\n")
    hook.write_text('#!/bin/sh\n: >"$(dirname "$3")/done"\n')
    hook.chmod(0o755)
    offered.mkdir()
    os.link(stage.file, offered / stage.file.name)
    stage.dir.chmod(0o755)
    command = ["opentracker", "-i", BRIDGE, "-p", str(TRACKER_PORT), "-d", str(stage.dir), "-w", "whitelist"]
    stage.beside_them("opentracker", command)
    wait_until(lambda: stage.lab.listens(TRACKER_PORT), "the tracker")
    command = ["aria2c", *ARIA2.split(), str(metafile)]
    seeding = _on_command([*command, f"--dir={offered}", "--bt-seed-unverified=true"], at_once=True)
    return seeding, lambda host: _on_command(
        [*command, f"--dir={stage.home(host)}", f"--on-bt-download-complete={hook}"]
    )


def nginx(stage: ReferenceHosts) -> Roles:
    config = stage.dir / "nginx.conf"
    config.write_text(f"""
daemon off; user root; worker_processes auto; pid {stage.dir}/nginx.pid; error_log stderr;
events {{ worker_connections 4096; }}
http {{ access_log off; sendfile on; tcp_nopush on; client_body_temp_path {stage.dir}/body;
  server {{ listen {stage.seeder.address}:{HTTP_PORT}; root {stage.source}; }} }}
""")
    seeding = _on_command(["nginx", "-c", str(config)], at_once=True)
    fetch = [sys.executable, "-m", "bench.swarm.peers", stage.seeder.address, stage.file.name]
    return seeding, lambda host: [*fetch, str(stage.home(host))]


SETTINGS = {
    "stock": "libtorrent as it ships, its own piece length; everybody is told everybody's address",
    "tuned": "the best that `bench.scale.tuning bare` found: TUNED of bench/bare_libtorrent.py and pieces of 32 KiB; "
    "everybody is told everybody's address",
    "aria2": f"aria2c {ARIA2}; opentracker with a whitelist",
    "nginx": f"HTTP from one nginx: {NGINX}",
    "kraken": "origin, tracker and agents with the base.yaml that Kraken publishes: pieces of 4 MB; the tracker's link "
    "is not limited",
    "kraken-tuned": f"the same with {TUNED_KRAKEN}",
    "dragonfly": "scheduler without manager, a seed peer beside the source, and peers, with the values of the "
    "published docker-compose; the scheduler's link is not limited",
    "local": "our own LocalCodeDistributor: every host copies from a holder over HTTP",
}
STAGES: dict[str, Callable[[ReferenceHosts], Roles]] = {
    "stock": libtorrent("stock"),
    "tuned": libtorrent("tuned", TUNED_PIECE),
    "aria2": aria2,
    "nginx": nginx,
    "kraken": kraken(),
    "kraken-tuned": kraken(TUNED_KRAKEN),
    "dragonfly": dragonfly(),
}
FROM_ONE = ("nginx", "local", "docker-registry")
"""These take as many link times as there are hosts."""


def patience(kind: str, scenario: Scenario) -> float:
    """Returns the link times after which a run is given up. Nobody knows how long the programs of
    others need."""
    return scenario.hosts + 4.0 if kind in (*FROM_ONE, *BUILT) else PATIENCE


def broadcast(
    lab: Lab,
    scenario: Scenario,
    source: Path,
    kind: str,
    seconds: float,
    roles: Callable[[ReferenceHosts], Roles] | None = None,
) -> Outcome:
    """Runs one broadcast of a reference. `roles`: replaces the roles of that kind."""
    names = [f"{kind}-{number}" for number in range(scenario.hosts)]
    stage = ReferenceHosts(lab, source, lab.dir / kind, lab.add([f"{kind}-seed"])[0], lab.add(names))
    stage.dir.mkdir()
    seeding, fetching = (roles or STAGES[kind])(stage)
    everybody = [stage.seeder, *stage.hosts]
    processes = [lab.spawn(stage.seeder, seeding, name=stage.seeder.name, stdin=subprocess.PIPE)]
    for host in stage.hosts:
        stage.home(host).mkdir()
        processes.append(lab.spawn(host, fetching(host), name=host.name, stdin=subprocess.PIPE))
    for host in everybody if scenario.rate else []:
        lab.shape(host, scenario.holder_link if host is stage.seeder else scenario.rate)
    for process in processes:
        line_of(process.stdout)
    lab.warm(scenario.memory)
    hosts = {host.name: host for host in stage.hosts}
    before = stage.seeder.sent()
    watch = Watch(hosts, scenario.bytes, lambda name: stage.home(hosts[name]) / "done")
    for process in processes[1:]:
        _go(process)
    missing = watch.wait(names, patience(kind, scenario) * seconds + 20)
    copies = watch.copies()
    outcome = Outcome(
        starts=dict.fromkeys(names, 0.0),
        ends=watch.ends,
        seeder_copies=(stage.seeder.sent() - before) / scenario.bytes,
        received_copies=sum(copies[name] for name in names) / len(names),
        progress=watch.progress,
        failed=missing,
    )
    lab.stop([*(host.name for host in everybody), *stage.beside])
    lab.remove(everybody)
    shutil.rmtree(stage.dir)
    return outcome


def lacking(kinds: list[str]) -> list[str]:
    """Returns what is missing on this machine, each with the script that brings it."""
    packages = [program for kind in kinds for program in NEEDS.get(kind, ()) if not shutil.which(program)]
    own = [program for kind in kinds for program in BUILT.get(kind, ()) if not built(program).exists()]
    said = [f"{program} (scripts/lab-peers)" for program in packages] + [f"{p} (scripts/neighbours)" for p in own]
    return list(dict.fromkeys(said))


def link_time(lab: Lab, scenario: Scenario, source: Path) -> float:
    """Times one plain HTTP transfer of the bundle from one host to another, onto its disk."""
    server, client = lab.add(["hs", "hc"])
    if scenario.rate:
        lab.shape(server, scenario.rate)
        lab.shape(client, scenario.rate)
    command = [sys.executable, "-m", "http.server", str(HTTP_PORT), "--directory", str(source)]
    lab.spawn(server, command, name="http-server")
    name = next(path.name for path in source.iterdir())
    home = lab.dir / "http-copy"
    home.mkdir()
    fetch = [sys.executable, "-m", "bench.swarm.peers", server.address, name, str(home)]
    process = lab.spawn(client, fetch, name="http-client", stdin=subprocess.PIPE)
    line_of(process.stdout)
    _go(process)
    seconds = float(line_of(process.stdout))
    lab.stop(["http-server", "http-client"])
    shutil.rmtree(home)
    lab.remove([server, client])
    return seconds


def fetch_by_http(address: str, name: str, home: Path) -> float:
    """Fetches a file. The client is connected before it says that it is ready."""
    connection = http.client.HTTPConnection(address, HTTP_PORT, timeout=3600)
    for _ in range(200):
        try:
            connection.connect()
            break
        except OSError:
            time.sleep(0.05)
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    connection.request("GET", f"/{name}")
    response = connection.getresponse()
    with (home / name).open("wb") as out:
        while data := response.read(65536):
            out.write(data)
    (home / "done").touch()
    return time.monotonic() - began


def _write_metafile(file: Path, target: Path, version: int, piece: int, tracker: str = "") -> str:
    """Makes a metafile with libtorrent alone, and returns its info-hash of version 1."""
    made = lt.create_torrent(lt.list_files(str(file)), piece, version)
    if tracker:
        made.add_tracker(tracker)
    lt.set_piece_hashes(made, str(file.parent))
    target.write_bytes(lt.bencode(made.generate()))
    return str(lt.load_torrent_buffer(target.read_bytes()).info_hashes.v1)


def _on_command(command: list[str], *, at_once: bool = False) -> list[str]:
    """Wraps a program that does not know the lab's start signal."""
    wait = "" if at_once else "read -r go; "
    return ["sh", "-c", f'echo ready; {wait}exec "$@" >/dev/null', "sh", *command]


def _go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"go\n")
    process.stdin.flush()


if __name__ == "__main__":
    print(fetch_by_http(sys.argv[1], sys.argv[2], Path(sys.argv[3])), flush=True)
