"""Brings a new version to a fleet in the lab, of which some hosts have the old one.

Always: bytes are those that came down a host's link, headers and all. Times run from the command to
the published directory. The old version arrives before the links are limited.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.lab.namespaces import Host, Lab, received, wait_until
from bench.swarm.our_cluster import BUNDLE, Ours
from bench.swarm.scenario import Scenario

NEW = "swarm-2"
LONGEST_SECS = 600.0
LOOK_SECS = 0.02


class Spread(NamedTuple):
    received: dict[str, int]
    """Bytes that came down the link of each host."""
    done: dict[str, float]
    """When each host had published the new version."""


class Fleet(Ours):
    """A cluster to which a second bundle is brought."""

    def bring(self, new: Path, *, knowing: int, rate: float) -> Spread:
        """Uploads `new` and brings it to all hosts, after `knowing` of them got the old version.
        `rate`: Mbit/s of each link; 0: no limit."""
        if knowing:
            names = ",".join(host.name for host in self.hosts[:knowing])
            self._command("bundle", "distribute", BUNDLE, "--supervisors", names)
        for host in [*self.hosts, *self.holders] if rate else []:
            self._lab.shape(host, rate)
        return Spread(*self._distribute_new(self.upload(new, NEW)))

    def bytes_uploaded(self, new: Path, rate: float) -> int:
        """Uploads `new` from a host. Returns the bytes that left it. Its link and the masters' have
        `rate` Mbit/s: if the uploader's had more, masters would rather get pieces from it than from
        each other."""
        uploader, holders = self.hosts[0], self.holders
        for host in (uploader, *holders):
            self._lab.shape(host, rate)
        before = _sent_by(uploader)
        wanted = ("--id", NEW, "--min-replicas", str(len(holders)))
        command = self._lab.spawn(uploader, self._cli("upload", str(new), *wanted), name="upload")
        if command.wait(LONGEST_SECS):
            raise RuntimeError("the upload failed")
        return _sent_by(uploader) - before

    def _distribute_new(self, digest: str) -> tuple[dict[str, int], dict[str, float]]:
        before, began = received(self.hosts), time.monotonic()
        done: dict[str, float] = {}
        command = self._lab.spawn(None, self._cli("bundle", "distribute", NEW), name="distribute")

        def all_done() -> bool:
            for host in self.hosts:
                if host.name not in done and (self._data(host) / "bundles" / digest).is_symlink():
                    done[host.name] = time.monotonic() - began
            return len(done) == len(self.hosts)

        wait_until(all_done, "the new version on all hosts", LONGEST_SECS)
        after = received(self.hosts)
        command.wait(LONGEST_SECS)
        return {name: after[name] - before[name] for name in after}, done


def _sent_by(host: Host) -> int:
    """Returns the bytes that left a host, headers and all."""
    return int(Path(f"/sys/class/net/{host.link}/statistics/rx_bytes").read_text())


def spread(lab: Lab, old: Path, new: Path, *, hosts: int, holders: int, knowing: int, rate: float = 0.0) -> Spread:
    """Makes a cluster whose masters have `old`, and brings `new` to its hosts."""
    with _fleet(lab, old, hosts=hosts, holders=holders) as fleet:
        return fleet.bring(new, knowing=knowing, rate=rate)


def uploaded(lab: Lab, old: Path, new: Path, *, holders: int, rate: float) -> int:
    """Makes a cluster whose masters have `old`, uploads `new` to all of them, and returns the bytes
    that left the uploader."""
    with _fleet(lab, old, hosts=1, holders=holders) as fleet:
        return fleet.bytes_uploaded(new, rate)


@contextmanager
def _fleet(lab: Lab, old: Path, *, hosts: int, holders: int) -> Iterator[Fleet]:
    fleet = Fleet(lab, Scenario(hosts=hosts, holders=holders, rate=0.0), old)
    fleet.up()
    try:
        yield fleet
    finally:
        fleet.down()
        shutil.rmtree(fleet.home, ignore_errors=True)
