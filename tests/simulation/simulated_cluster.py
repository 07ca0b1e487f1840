"""A whole cluster in one process: the real daemons on simulated hosts, and users with the real
client.

Always: a daemon that was killed leaves its disk as it was, and starts again from it.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from simulation.host_process import NOBODY, HostProcess
from simulation.kazoo_connection import ZK
from simulation.kept_records import KeptRecords
from simulation.simulated_host import API_PORT, Host
from simulation.simulated_zookeeper import SimulatedZooKeeper
from simulation.virtual_loop import VirtualLoop

from torrentdist.api.async_client import AsyncClient
from torrentdist.cluster import paths
from torrentdist.cluster.session.founding import found_at
from torrentdist.cluster.session.znode_operations import Create
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.master.places.place_operations import PARENTS
from torrentdist.model.access.envelope import public_key_text
from torrentdist.model.access.zookeeper_identity import MASTERS, Credentials, auth_text, host_user, identity_of
from torrentdist.model.configuration.config import (
    ApiConfig,
    ClientConfig,
    Config,
    JobsConfig,
    MasterConfig,
    ReplicationConfig,
    RequestsConfig,
    StoreConfig,
    SupervisorConfig,
    TrustConfig,
    TrustRule,
    ZooKeeperConfig,
)
from torrentdist.security.signing.signing_keys import Signer

SESSION_SECS = 6.0
LOOK_SECS = 0.25
SILENT_SECS = 15.0
"""A host that the leader has not heard for so long loses its workers."""
LOST_SECS = 20.0
"""A bundle that nobody has had for so long is lost."""
SIGNER = Signer(Ed25519PrivateKey.from_private_bytes(bytes(range(32))), "story")
TRUST = TrustConfig(
    cluster=SIGNER.cluster,
    bundles={"b*": TrustRule(keys=[public_key_text(SIGNER.public.raw)]), "*": TrustRule(mode="off")},
)
"""Users sign what hosts may use. Those of jobs are not looked at."""
SECRET = "a-secret-that-only-the-masters-have-0123456789"


class SimulatedCluster:
    def __init__(self, loop: VirtualLoop, zookeeper: SimulatedZooKeeper, place: Path, rng: random.Random) -> None:
        self.loop, self.zookeeper, self.place, self.rng = loop, zookeeper, place, rng
        self.hosts: list[Host] = []
        self.ends: list[tuple[str, str, str]] = []
        """Daemons that ended by themselves: name, code and message."""
        self.bugs: list[str] = []
        self.bug_errors: list[BaseException] = []
        self.has_identities = False
        """Whether each host is a user of ZooKeeper of its own."""
        self.has_ids = False
        """Whether each host has a directory of bundles by their ids."""
        self.trust = TrustConfig()
        self.scrub_secs = StoreConfig().scrub_secs
        self.answers_secs = 150.0
        """How long masters keep their answers to changes: longer than any user tries again."""
        self.kept = KeptRecords()
        self.one_known = False
        """Whether each user knows one master, and hears of the others from it."""
        self.token_file = str(place / "token")
        Path(self.token_file).write_text(f"{'t' * 40}\n")
        Path(self.token_file).chmod(0o600)

    def note_bug(self, text: str, error: BaseException | None = None) -> None:
        self.bugs.append(text)
        if error is not None:
            self.bug_errors.append(error)

    @property
    def masters(self) -> list[Host]:
        return [host for host in self.hosts if host.is_master]

    @property
    def supervisors(self) -> list[Host]:
        return [host for host in self.hosts if not host.is_master]

    def add(self, name: str) -> Host:
        kind = 1 if name.startswith("master") else 2
        number = sum(host.is_master == (kind == 1) for host in self.hosts) + 1
        host = Host(self, name, f"10.0.{kind}.{number}")
        host.data_dir.mkdir(parents=True)
        self.hosts.append(host)
        return host

    async def found(self) -> None:
        await found_at(self.zookeeper_config(), 10.0)
        if self.has_identities:
            await self._make_places()
        if any(host.process.release for host in self.hosts):
            self._write_schema(min(host.process.release for host in self.hosts if host.process.release))

    def schema(self) -> int:
        """Returns the schema in which the cluster writes its records."""
        node = self.zookeeper.nodes.get("/torrentdist/cluster")
        return 0 if node is None else int(json.loads(node.data)["schema"])

    def _write_schema(self, schema: int) -> None:
        node = self.zookeeper.nodes["/torrentdist/cluster"]
        node.data = json.dumps(json.loads(node.data) | {"schema": schema}).encode()

    def zookeeper_config(self, host: Host | None = None) -> ZooKeeperConfig:
        """Returns how a host, a master or an operator reaches ZooKeeper."""
        user = MASTERS if host is None or host.is_master else host.name
        return ZooKeeperConfig(
            servers=[f"{ZK}:2181"],
            session_timeout_secs=SESSION_SECS,
            operation_timeout_secs=3.0,
            auth_file=str(self.place / f"{user}.auth") if self.has_identities else "",
            identities=self.has_identities and user == MASTERS,
        )

    def give_identities(self) -> None:
        """Writes the auth file of the masters, and that of each host."""
        self.has_identities = True
        texts = {MASTERS: auth_text([Credentials(MASTERS, SECRET)])}
        for host in self.supervisors:
            texts[host.name] = auth_text(identity_of(SECRET, host_user(host.name)))
        for name, text in texts.items():
            path = self.place / f"{name}.auth"
            path.write_text(text)
            path.chmod(0o600)

    async def _make_places(self) -> None:
        """Gives each host its place in ZooKeeper, as an invitation does."""
        zookeeper = ZooKeeper(self.zookeeper_config())
        try:
            await zookeeper.start(10.0)
            for parent in PARENTS:
                await zookeeper.ensure(parent)
            for host in self.supervisors:
                user = host_user(host.name).encode()
                await zookeeper.commit([Create(path(host.name), user) for path in (paths.place, paths.host_members)])
        finally:
            await zookeeper.close()

    def config_of(self, host: Host) -> Config:
        data_dir = str(host.data_dir)
        ids_dir = str(host.ids_dir) if self.has_ids else ""
        of_host = SupervisorConfig(id=host.name, data_dir=data_dir, ids_dir=ids_dir)
        return Config(
            zookeeper=self.zookeeper_config(host),
            api=ApiConfig(listen=host.address, port=API_PORT, insecure_listen=True, token_file=self.token_file),
            master=MasterConfig(id=host.name if host.is_master else "", data_dir=data_dir, upgrade_after_secs=20.0),
            supervisor=SupervisorConfig() if host.is_master else of_host,
            client=self.client_config(),
            store=StoreConfig(reserve_bytes=0, scrub_secs=self.scrub_secs, limit_bytes=host.room),
            jobs=JobsConfig(isolation="none", silent_secs=SILENT_SECS, keep_secs=self.kept.ended_job),
            trust=self.trust,
            requests=RequestsConfig(keep_secs=self.answers_secs),
            replication=ReplicationConfig(
                lost_secs=LOST_SECS,
                sync_secs=30.0,
                abandon_secs=self.kept.silent_upload,
                tombstone_secs=self.kept.removed,
            ),
        )

    # ends of processes

    def on_death(self, host: Host, process: HostProcess) -> None:
        self.loop.network.process_died(process)
        if host.wanted and host.process is process:
            self.loop.call_later(self.rng.uniform(0.3, 2.0), self._restart, host, process, context=NOBODY.context())

    def _restart(self, host: Host, old: HostProcess) -> None:
        if host.wanted and host.process is old:
            host.start()

    def kill(self, host: Host, *, back_after: float | None) -> None:
        """Ends a daemon as `kill -9` does. None: its service manager starts it again at once."""
        if back_after is None:
            host.process.die()
            return
        host.wanted = False
        host.process.die()
        self.loop.call_later(back_after, self.bring_back, host, context=NOBODY.context())

    def stop(self, host: Host, *, back_after: float) -> None:
        """Ends a daemon as SIGTERM does."""
        host.wanted = False
        self.loop.create_task(host.stop(), context=NOBODY.context())
        self.loop.call_later(back_after, self.bring_back, host, context=NOBODY.context())

    def bring_back(self, host: Host) -> None:
        host.wanted = True
        if not host.up:
            host.start()

    def pause(self, host: Host) -> None:
        if host.up and host.process.held is None:
            host.process.held = []

    def go_on(self, host: Host) -> None:
        held, host.process.held = host.process.held, None
        for run in held or ():
            self.loop.call_soon(run, context=host.process.context())

    def wipe(self, host: Host) -> None:
        shutil.rmtree(host.data_dir, ignore_errors=True)
        host.data_dir.mkdir(parents=True, exist_ok=True)

    async def until(self, is_so: Callable[[], object], secs: float) -> bool:
        """Waits until something is so, for this long at most. Returns whether it is."""
        latest = self.loop.now + secs
        while not is_so():
            if self.loop.now >= latest:
                return False
            await asyncio.sleep(LOOK_SECS)
        return True

    # users

    def client_config(self) -> ClientConfig:
        known = (
            [self.rng.choice([one for one in self.masters if one.up] or self.masters)]
            if self.one_known
            else self.masters
        )
        return ClientConfig(
            masters=[master.url for master in known],
            supervisor="",
            token_file=self.token_file,
            token_in_the_clear=True,
            deadline_secs=30.0,
        )

    async def as_user(self, name: str, act: Callable[[AsyncClient], Awaitable[Any]]) -> Any:
        """Runs a call of the Python API as a user's process of its own. A user that has the name of
        a host is a program there."""
        host = next((host for host in self.hosts if host.name == name), None)
        process = HostProcess(f"program of {name}", "10.0.3.1" if host is None else host.address)
        context = process.context()

        async def call() -> Any:
            return await act(AsyncClient.of(Config(client=self.client_config())))

        return await self.loop.create_task(call(), context=context)

    def leader(self) -> Host | None:
        """Returns the master that leads by the records, as far as there is one."""
        parent = self.zookeeper.nodes.get("/torrentdist/election")
        queue = [] if parent is None else sorted(parent.children, key=lambda name: name[-10:])
        if not queue:
            return None
        data = self.zookeeper.nodes[f"/torrentdist/election/{queue[0]}"].data.decode(errors="replace")
        return next((host for host in self.masters if host.name in data), None)


def leads(host: Host) -> bool:
    """Whether this daemon acts as leader now."""
    room = getattr(host.daemon, "leading", None)
    return bool(room is not None and room.leadership.is_leader())
