"""Makes an uploader show content first that the cluster has under ids which the uploader may not
read. Holding a metafile does not make its content one's own.

Always: a record is made for such an uploader only after all bytes came from there and were hashed.
Never: keep these bytes, or compare them with anything but the metafile.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from torrentdist.bundle.files.content_proof import ContentProof
from torrentdist.bundle.metafile import Metafile
from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import BundleEntry, ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Op, Set
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.records import BundleState, encode
from torrentdist.security.authorization import matches_one

MOST_OF_ONE, MOST = 4, 64
"""Most proofs of one sender, and of all, that are under way."""
MOST_METAFILE_BYTES = 128 * 1024 * 1024
"""Most bytes that the metafiles of all proofs under way have. The first may be larger."""
KEPT_SECS = 300.0
"""How long after its last bytes a proof counts, and may go on."""


def must_prove(snapshot: ClusterSnapshot, names: Iterable[BundleId], reads: tuple[str, ...]) -> bool:
    """Whether an uploader with these patterns has to show the content of the bundles `names`: it
    may read none that is complete, and some are hidden from it."""
    found = [(name, snapshot.bundles[name].record.state) for name in names if name in snapshot.bundles]
    complete = (BundleState.AVAILABLE, BundleState.LOST)
    if any(state in complete and matches_one(reads, name) for name, state in found):
        return False
    return any(not matches_one(reads, name) for name, _ in found)


def give_way_ops(snapshot: ClusterSnapshot, names: Iterable[BundleId], bundle: BundleId) -> Sequence[Op]:
    """Ends uploads of the same content that have brought nothing yet, and whose uploaders may not
    read `bundle`. Otherwise its bytes would complete them."""
    entries = [snapshot.bundles[name] for name in names if name in snapshot.bundles and name != bundle]
    return [op for entry in entries if _gives_way(entry, bundle) for op in _ended(entry)]


def _gives_way(entry: BundleEntry, bundle: BundleId) -> bool:
    record = entry.record
    return record.state is BundleState.UPLOADING and not entry.replicas and not matches_one(record.sources, bundle)


def _ended(entry: BundleEntry) -> list[Op]:
    record = msgspec.structs.replace(entry.record, state=BundleState.REMOVED)
    return [Set(paths.bundle(record.id), encode(record), entry.version)]


@dataclass
class _UnderWay:
    proof: ContentProof
    heard_at: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Proofs:
    """The proofs that senders give to this master, the leader."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[str, Digest], _UnderWay] = {}

    def begin(self, sender: str, meta: Metafile) -> None:
        """Expects the bytes of this content from the sender. A proof that is under way goes on.

        The oldest of a sender with many gives way, unless there is no room for the new one either.
        """
        now = time.monotonic()
        self._under_way = {key: one for key, one in self._under_way.items() if now - one.heard_at < KEPT_SECS}
        own = [key for key in self._under_way if key[0] == sender]
        if (sender, meta.digest) in own:
            return
        left = self._under_way.copy()
        if len(own) >= MOST_OF_ONE:
            del left[own[0]]
        held = sum(len(one.proof.meta.raw) for one in left.values())
        if left and (len(left) >= MOST or held + len(meta.raw) > MOST_METAFILE_BYTES):
            raise TorrentdistError("not_ready", detail="many uploaders show their content at this moment")
        self._under_way = {**left, (sender, meta.digest): _UnderWay(ContentProof(meta), now)}

    def is_given(self, sender: str, digest: Digest) -> bool:
        found = self._under_way.get((sender, digest))
        return found is not None and found.proof.is_complete and time.monotonic() - found.heard_at < KEPT_SECS

    async def add(self, sender: str, digest: Digest, offset: int, data: bytes) -> int:
        """Takes bytes of the content. Returns the offset of the next ones."""
        found = self._under_way.get((sender, digest))
        if found is None:
            raise TorrentdistError("not_found", what=f"an upload of {digest} whose content has to be shown")
        async with found.lock:
            proof = found.proof
            if offset != proof.offset or offset + len(data) > proof.meta.size:
                detail = f"bytes at {offset} do not follow those at {proof.offset}"
                raise TorrentdistError("invalid_request", extra={"offset": proof.offset}, detail=detail)
            found.heard_at = time.monotonic()
            try:
                await asyncio.to_thread(proof.add, data)
            except TorrentdistError:
                self._under_way.pop((sender, digest), None)
                raise
            return proof.offset
