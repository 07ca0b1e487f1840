"""What users do meanwhile: uploads, downloads, removals and distributions, and a ledger of what was
acknowledged.

Always: if an answer never came, the ledger's entry is unsure: the bundle may be complete or absent,
and nothing else. Never: report an error of a cluster under faults as a finding. Wrong bytes are
one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from chaos.forgetting import Hush

from torrentdist.client.bundles.download import DownloadWanted, download
from torrentdist.client.bundles.upload import UploadWanted, upload
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.configuration.config import ClientConfig, Config
from torrentdist.model.errors import EXIT_NOT_FOUND, EXIT_UNAVAILABLE, TorrentdistError
from torrentdist.model.ids import BundleId, MasterId
from torrentdist.model.wire.fleet_messages import DistributeBody

PATIENCE_SECS = 30.0
MIN_REPLICAS = 2
LEAST_UPLOADS = 6
"""Number of uploads that must succeed. Few do on a loaded machine while things break, so the load
goes on until there are enough."""
EXPECTED_CODES = {"timed_out", "conflict", "disk_error", "disk_full"}


class State(StrEnum):
    UNSURE = "unsure"
    ACKED = "acknowledged"
    REMOVING = "removing"
    """A removal was requested and not answered: the bundle may be there or not."""
    REMOVED = "removed"


@dataclass
class Entry:
    id: BundleId
    source: Path
    state: State = State.UNSURE
    digest: str = ""
    """Known once the upload is acknowledged."""
    hosts: set[str] = field(default_factory=set)
    """The supervisors that were told to keep the bundle, as the answer named them."""


class Load:
    def __init__(self, directory: Path, masters: Sequence[str], token: Path, seed: int, ca: str = "") -> None:
        self._dir = directory
        self._rng = random.Random(seed)
        self.config = Config(
            client=ClientConfig(
                masters=list(masters),
                supervisor="",
                token_file=str(token),
                ca_file=ca,
                token_in_the_clear=True,
                deadline_secs=PATIENCE_SECS,
            )
        )
        self.ledger: dict[BundleId, Entry] = {}
        self.done: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.findings: list[str] = []
        self.hush = Hush()
        self.journal: list[str] = []
        """What was refused and when, for the investigation of a finding."""
        self._numbers = iter(range(1_000_000))
        self._end_at = 0.0

    async def run(self, seconds: float) -> None:
        """Works for `seconds`, or until `end`. Then it finishes what is under way, or gives up at
        its own deadline."""
        self._end_at = asyncio.get_running_loop().time() + seconds
        async with asyncio.TaskGroup() as group:
            for work in (self._upload, self._upload, self._download, self._download, self._remove, self._distribute):
                group.create_task(self._repeat(work))
            group.create_task(self._repeat(self._transfer))

    def end(self) -> None:
        """Ends `run` before its time."""
        self._end_at = min(self._end_at, asyncio.get_running_loop().time())

    async def _repeat(self, work: object) -> None:
        pause = {"_upload": 0.6, "_download": 0.5, "_remove": 3.0, "_distribute": 3.0, "_transfer": 11.0}
        name = work.__name__  # type: ignore[attr-defined]
        while True:
            await asyncio.sleep(self._rng.uniform(0.3, 2.0) * pause[name])
            late = asyncio.get_running_loop().time() - self._end_at
            if late > (PATIENCE_SECS if work == self._upload and self.done["upload"] < LEAST_UPLOADS else 0.0):
                return
            try:
                async with self.hush.work():
                    if await work():  # type: ignore[operator]
                        self.done[name.strip("_")] += 1
            except TorrentdistError as error:
                self.refused[f"{name.strip('_')}: {error.code}"] += 1
                self.journal.append(f"{time.time():.3f} {name} {error.code}: {error.message}")
                if error.exit_code not in (EXIT_UNAVAILABLE, EXIT_NOT_FOUND) and error.code not in EXPECTED_CODES:
                    self.findings.append(f"{name.strip('_')} failed with {error.code}: {error.message}")

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[MasterClient]:
        """A client like that of one user's next command: it remembers in the user's cache what
        earlier commands have seen."""
        async with MasterClient(self.config.client) as client:
            yield client

    def in_state(self, *states: State) -> list[Entry]:
        return [entry for entry in self.ledger.values() if entry.state in states]

    async def _upload(self) -> bool:
        number = next(self._numbers)
        entry = Entry(BundleId(f"b-{number}"), self._dir / "sources" / f"b-{number}")
        await asyncio.to_thread(write_tree, entry.source, self._rng.getrandbits(32))
        self.ledger[entry.id] = entry
        async with self.client() as client:
            wanted = UploadWanted(min_replicas=MIN_REPLICAS, timeout=PATIENCE_SECS, swarm=self.config.swarm)
            view = await upload(client, entry.source, entry.id, wanted)
        entry.digest = view.digest
        if view.achieved and view.replicas >= MIN_REPLICAS:
            entry.state = State.ACKED
            await self._look_for(entry)
        return view.achieved

    async def _look_for(self, entry: Entry) -> None:
        """Checks that a client whose upload was acknowledged sees the bundle with its next command,
        or is told that the answer is old."""
        async with self.client() as client:
            listed = {view.id for view in await client.bundles()}
            warned = client.stale is not None and client.stale.behind
        if entry.id not in listed and entry.state is State.ACKED and not warned:
            self.findings.append(f"{entry.id} was acknowledged, and the next command does not list it")

    async def _download(self) -> bool:
        entry = self._pick(State.ACKED)
        if entry is None:
            return False
        dest = self._dir / "downloads" / f"{entry.id}-{next(self._numbers)}"
        try:
            async with self.client() as client:
                await download(client, self.config, entry.id, dest, DownloadWanted(timeout=PATIENCE_SECS))
            if picture(dest) != picture(entry.source):
                self.findings.append(f"a download of {entry.id} got other bytes")
        except TorrentdistError as error:
            if error.exit_code == EXIT_NOT_FOUND and entry.state is State.ACKED:
                self.findings.append(f"{entry.id} was acknowledged, and a download says: {error.message}")
            raise
        finally:
            await asyncio.to_thread(shutil.rmtree, dest, ignore_errors=True)
        return True

    async def _remove(self) -> bool:
        entry = self._pick(State.ACKED)
        if entry is None:
            return False
        entry.state = State.REMOVING
        try:
            async with self.client() as client:
                await client.remove(entry.id)
        except TorrentdistError as error:
            if error.exit_code == EXIT_NOT_FOUND:  # no other client removes it, so the retry was not recognised
                self.findings.append(f"{entry.id} was acknowledged, and its removal says: {error.message}")
            raise
        entry.state = State.REMOVED
        return True

    async def _distribute(self) -> bool:
        entry = self._pick(State.ACKED)
        if entry is None:
            return False
        async with self.client() as client:
            fleet = await client.distribute(entry.id, DistributeBody())
        entry.hosts.update(host.supervisor for host in fleet.hosts)
        return True

    async def _transfer(self) -> bool:
        """Transfers the leadership."""
        async with self.client() as client:
            await client.transfer(MasterId(f"master-{self._rng.randint(1, 3)}"))
        return True

    def _pick(self, state: State) -> Entry | None:
        entries = self.in_state(state)
        return self._rng.choice(entries) if entries else None


def write_tree(top: Path, seed: int) -> None:
    """Writes a small bundle whose content depends only on the seed."""
    rng = random.Random(seed)
    (top / "code").mkdir(parents=True)
    (top / "code" / "main.py").write_bytes(rng.randbytes(rng.randrange(1, 20_000)))
    (top / "data.bin").write_bytes(rng.randbytes(rng.randrange(1, 1_500_000)))
    (top / "latest").symlink_to("code/main.py")


def picture(top: Path) -> dict[str, bytes]:
    """Returns everything below `top`, by path."""
    found = {}
    for directory, names, files in os.walk(top):
        for name in (*names, *files):
            path = Path(directory, name)
            data = os.readlink(path).encode() if path.is_symlink() else b"" if path.is_dir() else path.read_bytes()
            found[str(path.relative_to(top))] = data
    return found
