"""What stands beside ours in the same lab: bare libtorrent, and plain HTTP over one link, which is the unit of time."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from pathlib import Path

import libtorrent as lt

from bench.lab import Lab, line_of
from bench.swarm_scenario import Outcome, Scenario
from bench.swarm_watch import Watch

BARE = Path(__file__).with_name("swarm_bare.py")
HTTP_PORT = 8000
PATIENCE = 8.0


def link_time(lab: Lab, scenario: Scenario, source: Path) -> float:
    """One plain HTTP transfer of the bundle from one host to another, onto its disk."""
    server, client = lab.add(["hs", "hc"])
    if scenario.rate:
        lab.shape(server, scenario.rate)
        lab.shape(client, scenario.rate)
    command = [sys.executable, "-m", "http.server", str(HTTP_PORT), "--directory", str(source)]
    lab.spawn(server, command, name="http-server")
    fetch = [sys.executable, "-m", "bench.swarm_peers", server.address, str(lab.dir / "http-copy")]
    name = next(path.name for path in source.iterdir())
    process = lab.spawn(client, [*fetch, name], name="http-client", stdin=subprocess.PIPE)
    seconds = float(line_of(process.stdout))
    lab.stop(["http-server", "http-client"])
    (lab.dir / "http-copy").unlink()
    lab.remove([server, client])
    return seconds


def fetch_by_http(address: str, target: str, name: str) -> float:
    for _ in range(100):
        try:
            connection = http.client.HTTPConnection(address, HTTP_PORT, timeout=600)
            connection.connect()
            break
        except OSError:
            time.sleep(0.05)
    began = time.monotonic()
    connection.request("GET", f"/{name}")
    response = connection.getresponse()
    with open(target, "wb") as out:
        while data := response.read(65536):
            out.write(data)
    return time.monotonic() - began


def make_stock_metafile(source: Path, target: Path) -> None:
    """As libtorrent makes one by itself, for version 2 alone."""
    file = next(source.iterdir())
    made = lt.create_torrent(lt.list_files(str(file)), 0, lt.create_torrent.v2_only)
    lt.set_piece_hashes(made, str(source))
    target.write_bytes(lt.bencode(made.generate()))


def bare(lab: Lab, scenario: Scenario, source: Path, kind: str, number: int, seconds: float) -> Outcome:
    """Everybody is started and idle before the clock, knows everybody, and begins at the same moment."""
    metafile = lab.dir / "stock.torrent"
    if not metafile.exists():
        make_stock_metafile(source, metafile)
    names = [f"{kind}{number}-{n}" for n in range(scenario.hosts)]
    seeder = lab.add([f"{kind}{number}-seed"])[0]
    hosts = lab.add(names)
    homes = {host.name: lab.dir / f"bare-{host.name}" for host in hosts}
    peers = [seeder.address, *(host.address for host in hosts)]
    seeding = [sys.executable, str(BARE), "seed", kind, str(metafile), str(source), seeder.address]
    processes = [lab.spawn(seeder, seeding, name=seeder.name, stdin=subprocess.PIPE)]
    for host in hosts:
        if scenario.rate:
            lab.shape(host, scenario.rate)
        others = [peer for peer in peers if peer != host.address]
        command = [sys.executable, str(BARE), "fetch", kind, str(metafile), str(homes[host.name]), host.address]
        processes.append(lab.spawn(host, [*command, *others], name=host.name, stdin=subprocess.PIPE))
    if scenario.rate:
        lab.shape(seeder, scenario.rate)
    for process in processes:
        line_of(process.stdout)
    watch = Watch({host.name: host for host in hosts}, scenario.bytes, lambda name: (homes[name] / "done").exists())
    for process in processes[1:]:
        _go(process)
    missing = watch.wait(names, PATIENCE * seconds + 20)
    copies = sum(watch.copies(name) for name in names) / len(names)
    _go(processes[0])
    sent = int(line_of(processes[0].stdout))
    lab.stop([host.name for host in [seeder, *hosts]])
    lab.remove([seeder, *hosts])
    return Outcome(
        starts=dict.fromkeys(names, 0.0),
        ends=watch.ends,
        seeder_copies=sent / scenario.bytes,
        received_copies=copies,
        progress=watch.progress,
        failed=missing,
    )


def _go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"go\n")
    process.stdin.flush()


if __name__ == "__main__":
    print(fetch_by_http(*sys.argv[1:4]), flush=True)
