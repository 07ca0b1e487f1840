"""Measures Spark's own --archives against our gateway, with the same archive and an executor per
host.

`python -m bench.spark.spark_run --hosts 2,4,8` needs root. Every host has its own link. All
executors have worked before. The clock runs from the start of the tasks that need the archive,
which is when executors fetch it, to the end of the last task.

`local` is the same archive from a plain server on each host: no link and nothing of ours. It shows
what the executors themselves cost on this machine, whose cores serve all hosts.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

from bench.lab import namespaces as labs
from bench.lab.namespaces import BRIDGE, Host, Lab, line_of, wait_until
from bench.swarm.lab_run import write_source
from bench.swarm.our_cluster import Ours
from bench.swarm.scenario import Scenario

SPARK_HOME = Path(pyspark.__file__).parent
PORT = 7077
BAR = 0.25
"""Bar for the ratio to Spark's own time, with the most hosts."""
GATEWAY = "http://127.0.0.1:7070"
LOCAL_PORT = 7099
EXECUTORS, AGENTS = "executors", "supervisors"
_PROGRAMS = {"CoarseGrainedExecutorBackend": EXECUTORS, "torrentdist_cli supervisor": AGENTS}


@dataclass(frozen=True)
class Way:
    """The result of one way of delivery for one number of hosts."""

    seconds: float
    driver_seconds: float
    """Seconds until the driver had the archive, before the tasks began."""
    copies: float
    """Bytes that left the driver's host, in sizes of the archive."""
    cpu_secs: dict[str, float]
    """Processor seconds of executors with their tar, of supervisors, and of the idle time of both
    cores."""


class Spark:
    def __init__(self, lab: Lab, hosts: Sequence[Host], driver: Host) -> None:
        self._lab, self._hosts, self._driver = lab, hosts, driver
        self._local: list[str] = []
        self.dir = lab.dir / "spark"
        self.dir.mkdir()

    def up(self) -> None:
        master = ["master.Master", "--host", BRIDGE, "--port", str(PORT), "--webui-port", "0"]
        self._daemon(None, "spark-master", BRIDGE, master)
        wait_until(lambda: "Starting Spark master" in self._lab.log_of("spark-master"), "Spark's master")
        for host in self._hosts:
            work = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.dir / host.name), "--webui-port", "0"]
            worker = ["worker.Worker", "--host", host.address, *work, f"spark://{BRIDGE}:{PORT}"]
            self._daemon(host, f"spark-{host.name}", host.address, worker)
        registered = len(self._hosts)
        wait_until(lambda: self._lab.log_of("spark-master").count("Registering worker") == registered, "workers", 120)

    def measure(self, executors: int, archive: Path, bundle: str, size: int) -> dict[str, Way]:
        """Measures both ways in one application. Ours comes last; what Spark fetched before does
        not help it."""
        name = f"driver-{executors}"
        conf = {
            "spark.master": f"spark://{BRIDGE}:{PORT}",
            "spark.cores.max": executors,
            "spark.executor.memory": "512m",
            "spark.driver.memory": "512m",
            "spark.driver.host": self._driver.address,
            "spark.ui.enabled": False,
            "spark.task.maxFailures": 1,
        }
        # spark-submit would give a Python driver no standard input.
        program = [sys.executable, "-m", "bench.spark.driver", str(executors), json.dumps(conf)]
        process = self._lab.spawn(
            self._driver, [*self._environment(self._driver.address), *program], name=name, stdin=-1
        )
        if line_of(process.stdout) != "ready":
            raise RuntimeError(self._lab.log_of(name)[-3000:])
        found = {}
        # The gateways' URL is used once: Spark would take a second archive of the same name for
        # another one.
        urls = {"spark": str(archive), "ours": f"{GATEWAY}/bundles/{bundle}/archive.tar.gz"}
        urls["local"] = f"http://127.0.0.1:{LOCAL_PORT}/{archive.name.replace('own', 'local')}"
        for way, url in urls.items():
            if way == "local":
                self._serve_locally(archive, executors)
            before, used = self._driver.sent(), _used()
            assert process.stdin is not None
            process.stdin.write(f"{url}#{way}\n".encode())
            process.stdin.flush()
            answer = line_of(process.stdout)
            if not answer:
                raise RuntimeError(self._lab.log_of(name)[-3000:])
            said = json.loads(answer)
            here = len(list(self.dir.glob(f"*/{said['application']}/*/{way}/data")))
            if here != executors:
                raise RuntimeError(f"{here} of {executors} executors have it: a task went to another one's place")
            copies, cpu = (self._driver.sent() - before) / size, _used()
            spent = {program: round(cpu[program] - used.get(program, 0), 1) for program in cpu}
            found[way] = Way(said["seconds"], said["driver_seconds"], copies, spent)
        self._lab.stop([name, *self._local])
        self._local.clear()
        return found

    def _serve_locally(self, archive: Path, executors: int) -> None:
        for host in [*self._hosts, self._driver]:
            name = f"local-{executors}-{host.name}"
            command = [sys.executable, "-m", "bench.spark.local_server", str(archive), str(LOCAL_PORT)]
            line_of(self._lab.spawn(host, command, name=name, stdin=subprocess.PIPE).stdout)
            self._local.append(name)

    def _daemon(self, host: Host | None, name: str, address: str, command: Sequence[str]) -> None:
        kind = [str(SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{command[0]}"]
        self._lab.spawn(host, [*self._environment(address), *kind, *command[1:]], name=name)

    def _environment(self, address: str) -> list[str]:
        values = {"SPARK_HOME": SPARK_HOME, "SPARK_LOCAL_IP": address, "SPARK_LOCAL_DIRS": self.dir / "local"}
        values |= {"PYSPARK_PYTHON": Path(sys.executable), "SPARK_DAEMON_MEMORY": Path("128m")}
        return ["env", *(f"{name}={value}" for name, value in values.items())]


def _used() -> dict[str, float]:
    """Returns the processor seconds used so far by each program, ended children included, and the
    idle seconds."""
    tick = os.sysconf("SC_CLK_TCK")
    idle = int(Path("/proc/stat").read_text().split()[4]) / tick
    found = {EXECUTORS: 0.0, AGENTS: 0.0, "idle": idle}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_text().replace("\0", " ")
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            for part, program in _PROGRAMS.items():
                if part in command:
                    found[program] += sum(map(int, fields[11:15])) / tick
    return found


def pack(source: Path, archive: Path) -> Path:
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(source / "data", "data")
    return archive


def measure(counts: Sequence[int], rate: float, size: int) -> dict[int, dict[str, Way]]:
    lab = Lab()
    source = write_source(lab.dir / "source", size)
    # One more host for the driver.
    scenario = Scenario(hosts=max(counts) + 1, rate=rate, size=size)
    ours = Ours(lab, scenario, source)
    ours.up()
    *hosts, driver = ours.hosts
    spark = Spark(lab, hosts, driver)
    spark.up()
    found = {}
    for count in sorted(counts, reverse=True):
        fresh = write_source(lab.dir / f"source-{count}", size)
        ours.upload(fresh, f"env-{count}")
        archive = pack(fresh, lab.dir / f"own-{count}.tar.gz")
        found[count] = spark.measure(count, archive, f"env-{count}", scenario.bytes)
        print(f"{count} hosts: {found[count]}", file=sys.stderr, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark.spark_run", description=__doc__)
    parser.add_argument("--hosts", default="2,4,8")
    parser.add_argument("--rate", type=float, default=50.0, help="Mbit/s of every link, each way")
    parser.add_argument("--size", type=int, default=32, help="MiB")
    arguments = parser.parse_args()
    if reason := labs.why_not() if not os.environ.get(labs.INSIDE) else "":
        print(f"no lab on this machine: {reason}", file=sys.stderr)
        return 2
    labs.enter("bench.spark.spark_run", sys.argv[1:])
    found = measure([int(n) for n in arguments.hosts.split(",")], arguments.rate, arguments.size)
    link_time = arguments.size * 1024 * 1024 * 8 / (arguments.rate * 1e6)
    rows = [_row(count, ways) for count, ways in found.items()]
    ratio = rows[0]["ratio"]
    print(json.dumps({"link_time": round(link_time, 2), "rows": rows, "bar": BAR, "met": ratio <= BAR}), flush=True)
    return 0 if ratio <= BAR else 3


def _row(count: int, ways: dict[str, Way]) -> dict[str, Any]:
    own, ours = ways["spark"], ways["ours"]
    return {
        "hosts": count,
        "spark_secs": round(own.seconds, 2),
        "ours_secs": round(ours.seconds, 2),
        "ratio": round(ours.seconds / own.seconds, 3),
        "ours_driver_secs": round(ours.driver_seconds, 2),
        "ratio_with_driver": round((ours.seconds + ours.driver_seconds) / (own.seconds + own.driver_seconds), 3),
        "spark_copies": round(own.copies, 2),
        "ours_copies": round(ours.copies, 2),
        "local_secs": round(ways["local"].seconds, 2),
        "cpu_secs": {way: ways[way].cpu_secs for way in ways},
    }


if __name__ == "__main__":
    sys.exit(main())
