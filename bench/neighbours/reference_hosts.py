"""The hosts of one broadcast by another program, as the program's file in this package or in
bench/swarm sees them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.lab.namespaces import Host, Lab


@dataclass
class ReferenceHosts:
    """One host that has the file, and the hosts that fetch it."""

    lab: Lab
    source: Path
    dir: Path
    seeder: Host
    hosts: list[Host]
    beside: list[str] = field(default_factory=list)
    """Processes that belong to no host."""

    @property
    def file(self) -> Path:
        return next(self.source.iterdir())

    def home(self, host: Host) -> Path:
        """Returns the host's directory. A file `done` appears in it when the host has
        everything."""
        return self.dir / host.name

    def others(self, host: Host) -> list[str]:
        return [one.address for one in [self.seeder, *self.hosts] if one is not host]

    def beside_them(self, name: str, command: list[str]) -> None:
        """Starts a process on the bridge, whose link is not limited."""
        self.beside.append(name)
        self.lab.spawn(None, command, name=name)


Roles = tuple[list[str], Callable[[Host], list[str]]]
"""The command of the seeder, and the command of each host. Each prints a line when it is ready, and
begins when it receives a line."""
