"""Computes facts about files of bundles, such as their SHA-256, once, and keeps them on disk.

Always: a fact is kept by the Merkle root of its file, so it holds for that content alone. A fact
that many ask for at once is computed once. What cannot be written to disk is computed again.
Never: decide what content is handed out. A wrong fact on disk makes a client refuse a file.
"""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from torrentdist.bundle.metafile import FileEntry
from torrentdist.host.recent_results import RecentResults
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.model.wire.view import decode_json
from torrentdist.supervisor.bundles.host_content import HostContent

log = get_logger()

Compute = Callable[[HostContent, FileEntry], Awaitable[str]]
KEPT = 8
"""Bundles whose facts are in memory."""
AT_ONCE = 16
"""Files of one bundle that are read at once. Each holds a part in memory; some wait to arrive."""
MOST_BYTES = 64 * 1024 * 1024
"""Size of the largest file of facts. Facts beyond it are not kept, and are computed again."""


class KeptFact(msgspec.Struct, frozen=True):
    """A line of a file of facts."""

    root: str
    kind: str
    value: str


class BundleFacts(msgspec.Struct, frozen=True):
    values: dict[tuple[str, str], str]
    """Facts by root and kind."""
    room: asyncio.Semaphore = msgspec.field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    """One for each bundle, so that a bundle that does not arrive delays no other."""


class FileFacts:
    def __init__(self, directory: Path, is_here: Callable[[Digest], bool]) -> None:
        """`is_here` tells whether this host has a bundle, or fetches it. Facts about others go."""
        self._directory = directory
        self._is_here = is_here
        self._known: RecentResults[BundleFacts] = RecentResults(KEPT)
        self._computing: dict[tuple[Digest, str, str], asyncio.Task[str]] = {}
        self._is_closed = False

    async def get(self, content: HostContent, file: FileEntry, kind: str, compute: Compute) -> str:
        """Returns a fact of this kind about a file, which `compute` finds out if it is not
        known."""
        digest, root = content.meta.digest, file.root.hex()
        known = await self._of(digest)
        if (found := known.values.get((root, kind))) is not None:
            return found
        if self._is_closed:
            raise TorrentdistError("closing", what="the gateway")
        name = (digest, root, kind)
        task = self._computing.get(name)
        if task is None:
            task = asyncio.create_task(self._compute(content, file, kind, compute), name=f"{kind} of {file.path}")
            self._computing[name] = task
            task.add_done_callback(lambda done: self._end(name, done))
        return await asyncio.shield(task)  # a client that leaves does not end it for others

    async def close(self) -> None:
        self._is_closed = True
        for task in self._computing.values():
            task.cancel()
        await asyncio.gather(*self._computing.values(), return_exceptions=True)

    async def _compute(self, content: HostContent, file: FileEntry, kind: str, compute: Compute) -> str:
        known = await self._of(content.meta.digest)
        async with known.room:
            value = await compute(content, file)
        fact = KeptFact(file.root.hex(), kind, value)
        known.values[fact.root, kind] = value
        await asyncio.to_thread(self._append, content.meta.digest, fact)
        return value

    def _end(self, name: tuple[Digest, str, str], task: asyncio.Task[str]) -> None:
        self._computing.pop(name, None)
        if not task.cancelled():
            task.exception()  # all who asked may have left

    async def _of(self, digest: Digest) -> BundleFacts:
        async def load() -> BundleFacts:
            return BundleFacts(await asyncio.to_thread(self._load, digest))

        return await self._known.get(digest, load)

    def _path(self, digest: Digest) -> Path:
        return self._directory / f"{digest}.jsonl"

    def _load(self, digest: Digest) -> dict[tuple[str, str], str]:
        """Reads the facts about a bundle. Lines that are damaged do not count. Blocks."""
        self._forget_others(digest)
        known: dict[tuple[str, str], str] = {}
        try:
            path = self._path(digest)
            raw = path.read_bytes() if path.stat().st_size <= MOST_BYTES else b""
        except OSError:
            return known
        for line in raw.splitlines():
            with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                fact = decode_json(line, KeptFact)
                known[fact.root, fact.kind] = fact.value
        return known

    def _append(self, digest: Digest, fact: KeptFact) -> None:
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            with open(self._path(digest), "ab") as stream:
                # The line break in front ends a line that a crash has cut.
                line = b"\n" + msgspec.json.encode(fact) + b"\n"
                if stream.tell() + len(line) <= MOST_BYTES:
                    stream.write(line)
        except OSError as exc:
            log.warning("a fact about a file is not kept", digest=digest, detail=exc.strerror)

    def _forget_others(self, digest: Digest) -> None:
        """Deletes facts about bundles that have left this host."""
        with suppress(OSError):
            for name in os.listdir(self._directory):
                other = Digest(name.partition(".")[0])
                if other != digest and not self._is_here(other):
                    (self._directory / name).unlink(missing_ok=True)


def hashed_by(algorithm: str) -> Compute:
    """Returns the computation of a hash, such as `sha256`, of a file's content."""

    async def compute(content: HostContent, file: FileEntry) -> str:
        hasher = hashlib.new(algorithm, usedforsecurity=False)
        async for data in content.read_part(file, 0, file.size):
            await asyncio.to_thread(hasher.update, data)
        return hasher.hexdigest()

    return compute
