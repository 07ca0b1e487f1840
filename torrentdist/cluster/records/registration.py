"""Keeps a daemon's ephemeral record in /masters, /supervisors or a place of the host's own, through
every change of session.

Always: at most one daemon has an id. A record with our store's id is left over from our own
earlier process: only one process can lock a store. If a cluster id is given, the daemon registers
in that cluster only. A daemon that has set nothing in this session, or for an hour, writes its
record again, since it learns ZooKeeper's time from that.
Never: replace the record of another store.
Longer than most files: one small state machine with its ZooKeeper calls.
"""

import asyncio
import contextlib
import math
import random
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from urllib.parse import urlsplit

from torrentdist.cluster import paths
from torrentdist.cluster.session.znode_operations import (
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    SessionState,
    Set,
    Stat,
    TransactionFailed,
    ZNodeError,
)
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.log import get_logger
from torrentdist.model.backoff import Retry, kind_of
from torrentdist.model.errors import EXIT_UNAVAILABLE, TorrentdistError
from torrentdist.model.ids import StoreId
from torrentdist.model.records import ClusterRecord, MasterRecord, SupervisorRecord, decode, encode

log = get_logger()

_LONGEST_PAUSE_SECS = 10.0
_LOOK_AGAIN_SECS = 0.2
_PATIENCE = 1.75
"""How many session timeouts to wait for the end of another session. ZooKeeper ends sessions at its
ticks, and a tick may be half a timeout."""
_DIAL_SECS = 1.0
_CLOCK_SECS = 3600.0
"""Time after which ZooKeeper's clock is looked at again, on average."""


class RegistrationStep(Enum):
    CREATE = auto()
    KEEP = auto()
    """The record belongs to this session."""
    REPLACE = auto()
    """The record is ours, left over from a session that ZooKeeper has not expired yet."""
    TAKEN = auto()


def claim(owner: int | None, store: StoreId | None, session: int | None, own_store: StoreId) -> RegistrationStep:
    """Decides what to do about the znode with our id.

    `owner` is the session that owns it, or None if the znode does not exist. `store` is the store
    id in its record.
    """
    if owner is None:
        return RegistrationStep.CREATE
    if owner == session:
        return RegistrationStep.KEEP
    return RegistrationStep.REPLACE if store == own_store else RegistrationStep.TAKEN


class OtherCluster(Exception):
    """The tree holds a different cluster from the one to register in."""


class Registration:
    def __init__(
        self,
        zk: ZooKeeper,
        record: MasterRecord | SupervisorRecord,
        *,
        look_secs: float | None = None,
        cluster: str | None = None,
        ask_place: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`look_secs` is the average interval between checks of the record; None watches it
        instead.

        `cluster` is the id of the only cluster to register in; None allows any. `ask_place` asks
        the masters for a place of this host's own, where it has an identity of its own.
        """
        self._ask_place = ask_place if zk.identity.host is not None else None
        self._cluster = cluster
        self._zk = zk
        self.record = record
        self._look_secs = look_secs
        master = isinstance(record, MasterRecord)
        self._what = "master" if master else "supervisor"
        self.path = self._path()
        self._wake = asyncio.Event()
        self._watch: object | None = None
        self._task: asyncio.Task[None] | None = None
        self._again = Retry(_LOOK_AGAIN_SECS, _LONGEST_PAUSE_SECS)
        self._clock_secs = _CLOCK_SECS * random.uniform(0.75, 1.25)
        self.registered = False
        self._was_refused = False
        """Whether the last attempt was refused, and the masters have made the place since then."""
        self.on_change: list[Callable[[bool], None]] = []

    def _path(self) -> str:
        if isinstance(self.record, MasterRecord):
            return paths.master(self.record.id)
        return paths.supervisor(self.record.id) if self._ask_place is None else paths.registration(self.record.id)

    async def start(self) -> None:
        """Registers, waiting through outages. Raises `id_taken` or OtherCluster.

        From then on, registers again whenever the record disappears. A record of another store may
        be our own from before the disk was replaced; it disappears with its session.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._zk.negotiated_timeout * _PATIENCE
        while True:
            try:
                await self._register()
                break
            except (TorrentdistError, ZNodeError, TransactionFailed) as error:
                if getattr(error, "code", "") == "id_taken":
                    if clock() >= deadline or await self._answers():
                        raise
                elif isinstance(error, TorrentdistError) and error.exit_code != EXIT_UNAVAILABLE:
                    raise
                else:
                    await self._wait(error)
                    deadline = clock() + self._zk.negotiated_timeout * _PATIENCE
            await asyncio.sleep(_LOOK_AGAIN_SECS)
        self._zk.on_state.append(self._on_state)
        self._zk.on_schema.append(self._wake.set)
        self._task = asyncio.create_task(self._run(), name="registration")

    async def _answers(self) -> bool:
        """Whether another process listens at the recorded address. Then its record will not
        disappear."""
        with contextlib.suppress(TorrentdistError):
            found = await self._zk.get(self.path)
            there = None if found is None else daemon_address(decode(found[0], type(self.record), path=self.path))
            return there is not None and there != daemon_address(self.record) and await listens_at(*there)
        return False

    async def abandon(self) -> bool:
        """Stops maintaining the record but leaves it in place, for a process that takes over the
        session.

        Returns False if nothing was started.
        """
        task, self._task = self._task, None
        if task is None:
            return False
        self._zk.on_state.remove(self._on_state)
        self._zk.on_schema.remove(self._wake.set)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        self._tell(False)
        return True

    async def close(self) -> None:
        """Deletes the record now instead of leaving it to the session's end."""
        if await self.abandon():
            await self._withdraw()

    async def _withdraw(self) -> None:
        with contextlib.suppress(TorrentdistError, ZNodeError):
            found = await self._zk.get(self.path)
            if found is not None and found[1].ephemeral_owner == self._zk.session_id:
                await self._zk.delete(self.path, found[1].version)

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            self._watch = None
            self._tell(False)
        self._wake.set()

    def _on_change(self, watch: object) -> None:
        if self._watch is watch:
            self._watch = None
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._register()
                self._again.succeeded()
            except OtherCluster:
                self._tell(False)
                return
            except (TorrentdistError, ZNodeError, TransactionFailed) as exc:
                await self._wait(exc)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._secs_to_next_look()):
                    await self._wake.wait()

    def _secs_to_next_look(self) -> float:
        look = math.inf if self._look_secs is None else self._look_secs * random.uniform(0.75, 1.25)
        return min(look, max(_LOOK_AGAIN_SECS, self._clock_secs - self._zk.clock_age()))

    async def _wait(self, error: Exception) -> None:
        if self._again.failed(kind_of(error)):
            log.warning("not registered, trying again", path=self.path, reason=str(error))
        await self._zk.pause(self._again.pause_secs)

    def look_again(self) -> None:
        """Checks soon that the record still exists."""
        self._wake.set()

    async def _register(self) -> None:
        """Makes the record ours and, unless it is polled, watches it."""
        while True:
            found = await self._look()
            # Checked after the read: any record found earlier belongs to the same cluster.
            await self._require_cluster()
            owner = None if found is None else found[1].ephemeral_owner
            match claim(owner, None if found is None else self._store_of(found[0]), self._zk.session_id, self._store):
                case RegistrationStep.KEEP:
                    assert found is not None
                    # The process whose session we took over wrote it, or it has an older schema, or
                    # what we know of ZooKeeper's clock is old.
                    spoken = self._zk.spoken(self.path, encode(self.record))
                    if found[0] != spoken or self._zk.clock_age() >= self._clock_secs:
                        await self._rewrite(found[1].version)
                        continue
                    self._tell(True)
                    return
                case RegistrationStep.TAKEN:
                    self._tell(False)
                    raise TorrentdistError("id_taken", what=self._what, id=self.record.id)
                case RegistrationStep.CREATE:
                    await self._make([])
                case RegistrationStep.REPLACE:
                    assert found is not None
                    await self._make([Delete(self.path, found[1].version)])

    async def _require_cluster(self) -> None:
        if self._cluster is None:
            return
        found = await self._zk.get(paths.CLUSTER)
        if found is not None and decode(found[0], ClusterRecord, path=paths.CLUSTER).id != self._cluster:
            await self._withdraw()
            raise OtherCluster

    async def _look(self) -> tuple[bytes, Stat] | None:
        # At most one watch exists, however often this is called. It may fire before we see the
        # answer that set it.
        if self._watch is not None or self._look_secs is not None:
            return await self._zk.get(self.path)
        self._watch = watch = object()
        found = None
        try:
            found = await self._zk.get(self.path, lambda: self._on_change(watch))
        finally:
            if found is None and self._watch is watch:
                self._watch = None
        return found

    async def _rewrite(self, version: int) -> None:
        """Tries to replace the record. The next check shows whether it worked."""
        try:
            await self._zk.set(self.path, encode(self.record), version)
        except (BadVersion, NoNode):
            pass
        except TorrentdistError as exc:
            if exc.code != "outcome_unknown":
                raise

    async def _make(self, before: list[Delete]) -> None:
        """Tries to create the record. The next check shows whether it worked."""
        was_refused, self._was_refused = self._was_refused, False
        try:
            # The answer to a Set tells ZooKeeper's time.
            data = encode(self.record)
            await self._zk.commit([*before, Create(self.path, data, ephemeral=True), Set(self.path, data)])
        except TransactionFailed as exc:
            if isinstance(exc.reason, NoNode):
                await self._make_parent()
            elif not isinstance(exc.reason, NodeExists | BadVersion):
                raise
        except TorrentdistError as exc:
            if exc.code == "forbidden" and self._ask_place is not None:
                if was_refused:
                    raise TorrentdistError("identity_outdated", id=self.record.id) from exc
                await self._ask_place()  # The place is that of an earlier host with our id.
                self._was_refused = True
            elif exc.code != "outcome_unknown":
                raise

    async def _make_parent(self) -> None:
        await (self._zk.ensure(paths.parent(self.path)) if self._ask_place is None else self._ask_place())

    @property
    def _store(self) -> StoreId:
        return self.record.store

    def _store_of(self, data: bytes) -> StoreId | None:
        with contextlib.suppress(TorrentdistError):
            return decode(data, type(self.record), path=self.path).store
        return None

    def _tell(self, registered: bool) -> None:
        if registered is not self.registered:
            self.registered = registered
            log.info("registered" if registered else "no longer registered", path=self.path)
            for callback in list(self.on_change):
                callback(registered)


def daemon_address(record: MasterRecord | SupervisorRecord) -> tuple[str, int] | None:
    """Returns the address on which the daemon listens; None if its record tells none."""
    try:
        url = urlsplit(record.url if isinstance(record, MasterRecord) else record.gateway)
        return (url.hostname, url.port) if url.hostname and url.port else None
    except ValueError:  # such as an address whose bracket does not end
        return None


async def listens_at(host: str, port: int) -> bool:
    """Whether a process listens there. Nobody does where the host is no name of a host."""
    try:
        async with asyncio.timeout(_DIAL_SECS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, ValueError, TimeoutError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
