"""Carries out the faults of a story, and mends them when their time is over."""

from __future__ import annotations

import random
from collections.abc import Callable

from simulation.host_process import NOBODY
from simulation.invariants import Invariants
from simulation.kazoo_connection import ZK
from simulation.lost_names import Names
from simulation.simulated_cluster import SESSION_SECS, TRUST, SimulatedCluster
from simulation.simulated_host import Host
from simulation.simulated_runs import SimulatedRunning
from simulation.steps import UNSENT, Step
from simulation.unsynced import flip_bit, lose_unsynced

USERS_ADDRESS = "10.0.3.1"
LINKS = frozenset({"deaf", "mute", "no zookeeper", "cut", "one way", "isolate", "expire", "expire leader"})
FOLLOWER_SECS = 10.0
"""Longest time until a ZooKeeper server that misses its leader drops its clients (`syncLimit`)."""
SCRUB_SECS = 30.0
SOON_SECS = (2.0, 15.0)
"""How long workers work that have much to say."""
LAST_RELEASE = 1
"""The schema of records that daemons of the last release read and write."""
UPGRADED_SECS = 3.0
EXPIRED_SECS = SESSION_SECS * 1.2


class Faults:
    def __init__(self, cluster: SimulatedCluster, invariants: Invariants, note: Callable[[str], None]) -> None:
        self.cluster, self._invariants, self._note = cluster, invariants, note
        self._network = cluster.loop.network

    def prepare(self, steps: tuple[Step, ...]) -> None:
        """Does once what a story's faults need from its beginning."""
        kinds = {step.kind for step in steps}
        if "bit flip" in kinds:
            self.cluster.scrub_secs = SCRUB_SECS
        if "identities" in kinds:
            self.cluster.give_identities()
        self.cluster.has_ids = not kinds.isdisjoint(("lease", "prune in use"))
        if "trust" in kinds:
            self.cluster.trust = TRUST
        for step in steps:
            host = self._host(step)
            if step.kind == "last release" and host is not None:
                host.process.release = host.next_release = LAST_RELEASE
            if step.kind == "long texts":
                SimulatedRunning.all_runs.last_words = "words " * (step.number // 6)
                SimulatedRunning.all_runs.busy_secs = SOON_SECS
            if step.kind == "small store" and host is not None:
                host.room = step.number
        for host in self.cluster.hosts if any(kind.startswith("power") for kind in kinds) else ():
            host.names = Names(self.cluster.place / f"cellar-{host.name}")

    def _later(self, secs: float, act: Callable[..., object], *args: object) -> None:
        self.cluster.loop.call_later(secs, act, *args, context=NOBODY.context())

    def _host(self, step: Step) -> Host | None:
        if step.kind.endswith("leader"):
            return self.cluster.leader()
        return next((host for host in self.cluster.hosts if host.name == step.who), None)

    def happen(self, step: Step) -> None:
        host = self._host(step)
        if step.kind in LINKS and host is not None:
            links = self._links(step, host)
            self._network.cut(links)
            secs = EXPIRED_SECS if step.kind.startswith("expire") else step.secs
            self._later(secs, self._network.uncut, links)
        elif step.kind in ("zookeeper down", "zookeeper frozen", "wipe zookeeper", "set back"):
            self._on_zookeeper(step)
        elif step.kind == "join":
            self.cluster.add(step.who).start()
        elif step.kind == "small requests":
            self.cluster.zookeeper.take_less(step.number)
        elif step.kind == "snapshot":
            self.cluster.zookeeper.copy_disks()
        elif step.kind == "slow zookeeper":
            self._slow_zookeeper(step)
        elif step.kind == "reset":
            self._network.reset_one()
        elif host is not None:
            self._on_host(step, host)

    def _links(self, step: Step, host: Host) -> set[tuple[str, str]]:
        other = next((each.address for each in self.cluster.hosts if each.name == step.what), ZK)
        here = host.address
        match step.kind:
            case "deaf":
                return {(ZK, here)}
            case "mute":
                return {(here, ZK)}
            case "no zookeeper" | "expire" | "expire leader":
                return {(here, ZK), (ZK, here)}
            case "cut":
                return {(here, other), (other, here)}
            case "one way":
                return {(here, other)}
        everybody = [ZK, USERS_ADDRESS, *(each.address for each in self.cluster.hosts)]
        return {link for each in everybody for link in ((here, each), (each, here))}

    def _on_zookeeper(self, step: Step) -> None:
        zookeeper = self.cluster.zookeeper
        if step.kind != "zookeeper frozen":
            zookeeper.up, zookeeper.gone_at = False, self.cluster.loop.time()
            for session in list(zookeeper.sessions.values()):
                if session.connection is not None:
                    session.connection.session_ended()
            back = {"zookeeper down": zookeeper.restart, "wipe zookeeper": zookeeper.wipe, "set back": self._set_back}
            self._later(step.secs, back[step.kind])
        else:
            zookeeper.freeze()
            self._later(step.secs, zookeeper.thaw)

    def _set_back(self) -> None:
        self.cluster.zookeeper.set_back()
        self._invariants.forget_records()

    def _slow_zookeeper(self, step: Step) -> None:
        chance = random.Random(step.number)
        for host in self.cluster.hosts:
            self._network.slow_links[ZK, host.address] = chance.uniform(0.05, 1.5)
            self._later(step.secs, self._network.slow_links.pop, (ZK, host.address), None)

    def _on_host(self, step: Step, host: Host) -> None:
        cluster = self.cluster
        match step.kind:
            case "kill" | "kill leader":
                cluster.kill(host, back_after=step.secs)
            case "upgrade" | "go back":
                cluster.stop(host, back_after=step.secs)
                host.next_release = 0 if step.kind == "upgrade" else LAST_RELEASE
            case "stop":
                cluster.stop(host, back_after=step.secs)
            case "crash":
                host.process.effects_left = step.number
            case "crash at write":
                host.process.writes_left, host.process.dies_unsent = step.number, step.what == UNSENT
            case "slow reader":
                self._network.read_slowly(host.address)
                self._later(step.secs, self._network.read_on, host.address)
            case "torn answer":
                self._network.torn.add(host.address)
            case "drift":
                host.process.wall_drift = step.number / 100.0
            case "pause" | "pause leader":
                cluster.pause(host)
                self._later(step.secs, cluster.go_on, host)
            case "slow link":
                chance = random.Random(step.number)
                link = (host.address, next((h.address for h in cluster.hosts if h.name == step.what), ZK))
                self._network.slow_links[link] = chance.uniform(0.1, 2.0)
                self._later(step.secs, self._network.slow_links.pop, link, None)
            case "clock":
                host.process.wall_skew += step.number
            case "full" | "slow disk" | "broken disk" | "read-only disk":
                host.process.disk = step.kind.removesuffix(" disk")
                self._later(step.secs, self._free, host)
            case "disk error":
                host.process.fails_after = step.number
            case "bit flip":
                flipped = flip_bit(host.data_dir / "objects", cluster.rng)
                self._invariants.excused.add(host.name)
                host.process.rots = True
                self._note(f"a bit turns in {'nothing' if flipped is None else flipped.relative_to(host.data_dir)}")
            case "follower":
                cluster.zookeeper.cut_off(host.address)
                self._later(min(step.secs, FOLLOWER_SECS), cluster.zookeeper.rejoin, host.address)
            case "power":
                self._network.power_off(host.address)
                cluster.kill(host, back_after=step.secs)
                SimulatedRunning.all_runs.host_lost(host.address)
                lost = 0 if host.names is None else host.names.lose(cluster.rng)
                self._note(f"{host.name} has lost {lost} names")
                lose_unsynced(host.data_dir, cluster.rng)
            case "last release" | "small store" | "identities" | "trust":
                pass  # It was from the beginning.
            case "wipe":
                cluster.kill(host, back_after=step.secs)
                self._invariants.excused.add(host.name)
                cluster.wipe(host)

    @staticmethod
    def _free(host: Host) -> None:
        host.process.disk = ""

    def mend_all(self) -> None:
        """Ends every fault at once: the calm begins."""
        self._network.mend()
        zookeeper = self.cluster.zookeeper
        if not zookeeper.up:
            zookeeper.restart()
        zookeeper.thaw()
        for host in self.cluster.hosts:
            zookeeper.rejoin(host.address)
            host.process.effects_left = host.process.writes_left = host.process.fails_after = None
            self._free(host)
            self.cluster.go_on(host)
            self.cluster.bring_back(host)
            host.next_release = 0
            if host.process.release:
                self.cluster.stop(host, back_after=UPGRADED_SECS)
        self._note("calm begins")
