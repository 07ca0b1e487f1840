"""The records that a master answers reads from: the mirror of ZooKeeper, or a file while there is
no mirror.

Each master saves the records in a file, so that it can answer when it starts while ZooKeeper is
away.
Always: a file that is damaged, or of a schema that this release cannot read, is removed and written
anew. A file is never replaced by an older one.
Never: mix the file with records from ZooKeeper, or decide a change by what the file says.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from torrentdist.bundle.files.durability import write_durably
from torrentdist.cluster.records.mirror import Mirror
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.arrival import lacks_cluster
from torrentdist.cluster.session.znode_operations import SessionState
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import HttpError
from torrentdist.log import get_logger
from torrentdist.master.reads.readable_records import ReadableRecords
from torrentdist.master.reads.shared_secrets import SharedSecrets
from torrentdist.model.backoff import Retry
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import MasterId
from torrentdist.model.records import OLDEST_READABLE, SCHEMA
from torrentdist.model.wire.view import decode_json
from torrentdist.security.authorization import Principal

log = get_logger()

NAME = "cluster.snapshot"
FORMAT = 1
FROM_FILE = -2
"""Version of a snapshot that came from a file. No mirror has it."""
LOOK_SECS = 1.0
LONGEST_PAUSE_SECS = 60.0
DOWNLOAD_SECS = 5.0
MOST_BYTES = 1024**3
"""Largest file of records that is taken from another master."""


class SavedRecords(msgspec.Struct, frozen=True, kw_only=True):
    format: int = FORMAT
    schema: int = SCHEMA
    """Schema of the saved records."""
    zxid: int
    """The records show every transaction up to this one."""
    saved_at: float
    """Wall clock of the master that wrote the file, in seconds. It tells the age of the file."""
    snapshot: ClusterSnapshot

    def at_least_as_new_as(self, other: SavedRecords | None) -> bool:
        """Whether these records may replace `other`.

        A restored tree counts transactions anew, in a higher epoch.
        """
        if other is None or other.snapshot.cluster != self.snapshot.cluster:
            return True
        return (self.snapshot.epoch, self.zxid) >= (other.snapshot.epoch, other.zxid)


class _SavedHeader(msgspec.Struct, frozen=True):
    format: int
    schema: int


def encode_saved(saved: SavedRecords) -> bytes:
    body = msgspec.json.encode(saved)
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def decode_saved(data: bytes, path: str) -> SavedRecords:
    """Returns the saved records, or raises `corrupt` with the reason."""
    checksum, _, body = data.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        raise TorrentdistError("corrupt", path=path, detail="its checksum is another one")
    try:
        header = decode_json(body, _SavedHeader)
        if header.format != FORMAT or not OLDEST_READABLE <= header.schema <= SCHEMA:
            detail = f"its format {header.format}, schema {header.schema} is not one that this release reads"
            raise TorrentdistError("corrupt", path=path, detail=detail)
        return decode_json(body, SavedRecords)
    except msgspec.MsgspecError as exc:
        raise TorrentdistError("corrupt", path=path, detail=str(exc)) from exc


class SavingPace(msgspec.Struct, frozen=True):
    """When to write the file: after `changes` changes, or after `secs` seconds if anything changed.
    Both vary by a quarter.
    """

    changes: int
    secs: float
    jitter: float = 0.5
    """From 0 to 1, drawn once by each master, so that the masters do not write in step."""

    def due(self, changes: int, elapsed: float) -> bool:
        spread = 0.75 + 0.5 * self.jitter
        return changes > 0 and (changes >= self.changes * spread or elapsed >= self.secs * spread)


def source(snapshot: ClusterSnapshot, me: MasterId, leads: bool) -> list[str] | None:
    """Returns the URLs of standbys to copy the file from; None: write our own records.

    A leader leaves the encoding of the records to standbys, so that it spends no time on it. A
    leader that is alone does it itself.
    """
    others = [master.url for id_, master in sorted(snapshot.masters.items()) if id_ != me]
    return others if leads and others else None


class Records:
    """Answers from the mirror, or from the file until there is a mirror."""

    def __init__(
        self, me: MasterId, data_dir: Path, zookeeper: ZooKeeper, mirror: Mirror, http: Http, pace: SavingPace
    ) -> None:
        self._me = me
        self._path = data_dir / NAME
        self._zookeeper = zookeeper
        self._mirror = mirror
        self._http = http
        self._pace = pace
        self.secrets = SharedSecrets(zookeeper, self.snapshot)
        self._readable = ReadableRecords()
        self._on_disk: SavedRecords | None = None
        self._written: tuple[int, float] = (0, float("-inf"))
        """Version of the snapshot that was written last, and the time.monotonic() of the write."""
        self._unwritten = Retry(LOOK_SECS, LONGEST_PAUSE_SECS)
        self._cut_off_at = None if zookeeper.state is SessionState.CONNECTED else time.monotonic()
        zookeeper.on_state.append(self._on_state)

    async def load(self) -> None:
        try:
            data = await asyncio.to_thread(self._path.read_bytes)
            self._on_disk = await asyncio.to_thread(decode_saved, data, str(self._path))
        except FileNotFoundError:
            return
        except (OSError, TorrentdistError) as exc:
            log.warning("the saved records are refused and removed", path=str(self._path), reason=str(exc))
            await asyncio.to_thread(self._path.unlink, missing_ok=True)
            return
        log.info("saved records at hand", zxid=self._on_disk.zxid, bundles=len(self._on_disk.snapshot.bundles))

    # what others ask

    def snapshot(self) -> ClusterSnapshot:
        if self.from_file() and self._on_disk is not None:
            return msgspec.structs.replace(self._on_disk.snapshot, version=FROM_FILE, leader=None, election=())
        return self._mirror.snapshot

    def readable_by(self, sender: Principal) -> ClusterSnapshot:
        """Returns the records as the sender may see them."""
        return self._readable.of(self.snapshot(), sender)

    def zxid(self) -> int:
        """Returns the newest transaction such that all up to it are in the answers."""
        if self.from_file():
            return self._on_disk.zxid if self._on_disk is not None else 0
        return self._mirror.applied_zxid

    def lacks_cluster(self) -> bool:
        """Whether ZooKeeper answers and holds no cluster."""
        return lacks_cluster(self._mirror)

    def require_any(self) -> None:
        """Raises `no_cluster` if ZooKeeper holds none and none was saved here: an empty list would
        say that everything was removed."""
        if self.lacks_cluster() and self._on_disk is None:
            raise TorrentdistError("no_cluster", chroot=self._zookeeper.chroot)

    def server_now(self) -> float | None:
        """Returns ZooKeeper's clock.

        It alone tells ages, since hosts' clocks differ. None: not known yet.
        """
        return self._zookeeper.server_now()

    def from_file(self) -> bool:
        """Whether answers come from the file. They do until ZooKeeper was read, and while its tree
        holds no cluster, since such a tree says less."""
        return not self._mirror.snapshot.present

    def stale_secs(self) -> float | None:
        """Returns how old the answers are; None: they are fresh, or there are no records at all."""
        if self.from_file():
            return max(0.0, time.time() - self._on_disk.saved_at) if self._on_disk is not None else None
        return None if self._cut_off_at is None else self.cut_off_secs()

    def cut_off_secs(self) -> float:
        """Returns for how many seconds ZooKeeper has been out of reach."""
        return 0.0 if self._cut_off_at is None else time.monotonic() - self._cut_off_at

    def file(self) -> bytes:
        """Returns the saved file, for a leader that copies it."""
        if self._on_disk is None:
            raise TorrentdistError("not_found", what="a snapshot of the records on this master")
        return encode_saved(self._on_disk)

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._cut_off_at = None
        elif self._cut_off_at is None:
            self._cut_off_at = time.monotonic()

    # saving

    async def run(self, leads: Callable[[], bool]) -> None:
        while True:
            revision, at = self._written
            now = time.monotonic()
            if self._mirror.snapshot.present and self._pace.due(self._mirror.snapshot.version - revision, now - at):
                await self._renew(leads())
            await asyncio.sleep(self._unwritten.pause_secs)

    async def save(self) -> None:
        """Writes the present records, unless the file shows them already."""
        snapshot = self._mirror.snapshot
        if snapshot.present and snapshot.version != self._written[0]:
            records = msgspec.structs.replace(snapshot, recent=())
            saved = SavedRecords(zxid=self._mirror.applied_zxid, saved_at=time.time(), snapshot=records)
            await self._write(saved, snapshot.version)

    async def _renew(self, leads: bool) -> None:
        snapshot = self._mirror.snapshot
        standbys = source(snapshot, self._me, leads)
        if standbys is None:
            await self.save()
            return
        # Counts as written only if a standby's file shows all that we know; else we ask again.
        self._written = snapshot.version - 1, time.monotonic()
        for url in random.sample(standbys, len(standbys)):
            with contextlib.suppress(HttpError, TimeoutError, TorrentdistError):
                async with asyncio.timeout(DOWNLOAD_SECS):
                    response = await self._http.request("GET", f"{url}/v1/snapshot", most_bytes=MOST_BYTES)
                if response.status_code == 200:
                    saved = await asyncio.to_thread(decode_saved, response.content, url)
                    if saved.snapshot.cluster == snapshot.cluster:
                        ours = msgspec.structs.replace(snapshot, version=saved.snapshot.version, recent=())
                        await self._write(saved, snapshot.version if saved.snapshot == ours else snapshot.version - 1)
                        return

    async def _write(self, saved: SavedRecords, revision: int) -> None:
        if not saved.at_least_as_new_as(self._on_disk):
            log.info("older records than those on disk are not saved", zxid=saved.zxid)
            return
        data = await asyncio.to_thread(encode_saved, saved)
        try:
            await asyncio.to_thread(write_durably, self._path, data, 0o600)
        except OSError as exc:
            if self._unwritten.failed(str(exc.errno)):
                log.warning("the records could not be saved", path=str(self._path), reason=str(exc))
            return
        self._unwritten.succeeded()
        self._on_disk = saved
        self._written = revision, time.monotonic()
        log.debug("records saved", zxid=saved.zxid, size=len(data))
