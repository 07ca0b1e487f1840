"""A host for every master, and the packets that get lost on the way to it.

Always: a direction breaks silently, as with a broken switch. Supervisors, clients and ZooKeeper are
together on the bridge. Never: run outside of the lab's namespaces.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path

from chaos.schedule import Direction, Others

from bench.lab.namespaces import BRIDGE, Host, Lab


class Network:
    def __init__(self, directory: Path, masters: Sequence[str]) -> None:
        self._lab = Lab(directory)
        names = {f"m{number}": master for number, master in enumerate(masters, 1)}
        self._hosts = {names[host.name]: host for host in self._lab.add(list(names))}
        self._lost: dict[str, list[tuple[Host | None, Host | None]]] = {}
        self.token = directory / "token"
        self.token.write_text(secrets.token_hex(16))
        self.token.chmod(0o600)

    def address(self, name: str) -> str:
        return self._hosts[name].address if name in self._hosts else BRIDGE

    def within(self, name: str) -> list[str]:
        """Returns the prefix of a command that starts a daemon on its host."""
        return ["ip", "netns", "exec", self._hosts[name].name] if name in self._hosts else []

    def part(self, master: str, others: Others, direction: Direction) -> None:
        me = self._hosts[master]
        masters: list[Host | None] = [host for host in self._hosts.values() if host is not me]
        choice: dict[Others, list[Host | None]] = {
            Others.MASTERS: masters,
            Others.REST: [None],
            Others.ALL: [*masters, None],
        }
        them = choice[others]
        lost: list[tuple[Host | None, Host | None]] = [(other, me) for other in them if direction is not Direction.MUTE]
        lost += [(me, other) for other in them if direction is not Direction.DEAF]
        for way in lost:
            if all(way not in ways for ways in self._lost.values()):
                self._lab.lose(*way)
        self._lost[master] = lost

    def mend(self, master: str) -> None:
        for way in self._lost.pop(master, ()):
            if all(way not in ways for ways in self._lost.values()):
                self._lab.carry(*way)
