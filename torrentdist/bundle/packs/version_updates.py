"""Makes an update to a published bundle from an older one that a host has, or from nothing, of what
this store holds."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from torrentdist.bundle.file_tree import FileEntry
from torrentdist.bundle.metafile import CONTENT
from torrentdist.bundle.packs.pack_files import read_pack
from torrentdist.bundle.packs.pack_update import make_update, make_whole
from torrentdist.bundle.reuse.store_reuse import StoreReuse
from torrentdist.bundle.store.store import Store
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest


def update_to(store: Store, reuse: StoreReuse, digest: Digest, among: Sequence[Digest]) -> bytes:
    """Returns the update from the one `among` these bundles that has the most of this one; nothing
    if none of them has much, or one of both is not here as it was published."""
    try:
        return _update_to(store, reuse, digest, among)
    except TorrentdistError:
        return b""


def _update_to(store: Store, reuse: StoreReuse, digest: Digest, among: Sequence[Digest]) -> bytes:
    meta = store.metafile(digest) if store.get(digest) is not None else None
    sources = reuse.sources(meta, among=among) if meta is not None and meta.packed.files else []
    base = store.metafile(sources[0]) if sources and sources[0] != digest else None
    if meta is None or base is None:
        return b""
    return make_update(base, meta, partial(_read, store, digest)) or b""


def whole_of(store: Store, digest: Digest) -> bytes | None:
    """Returns a small published bundle with its metafile. None: it is not small, or not here as it
    was published."""
    with suppress(TorrentdistError):
        meta = store.metafile(digest) if store.get(digest) is not None else None
        return None if meta is None else make_whole(meta, partial(_read, store, digest))
    return None


def _read(store: Store, digest: Digest, files: Sequence[FileEntry]) -> bytes:
    if damage := store.check(digest, [file.path for file in files]):
        raise TorrentdistError("corrupt", path=damage[0].path, detail=damage[0].reason)
    return read_pack(store.object_dir(digest) / CONTENT, files)
