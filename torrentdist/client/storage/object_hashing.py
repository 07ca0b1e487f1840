"""Hashes objects as they stream by, and makes the metafile of the bundle that they are.

Always: the digest is that of a directory with the same files. An object whose length differs from
its listing, or that was written meanwhile, ends it with `changed_while_reading`. Once an object
failed, or nobody waits, no further part is asked for.
Never: hold more than a few megabytes of an object.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from typing import Final

from torrentdist.bundle.directory_scan import Scan, ScannedFile
from torrentdist.bundle.hashing import FileHash, hash_stream
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import choose_piece_length, metafile_of
from torrentdist.client.storage.object_listing import Listing, StoredObject, list_objects
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.storage_answers import past_old_connections, reason_of

THREADS: Final = 8
PART_BYTES: Final = 4 * 1024 * 1024
"""How much of an object is asked for at a time."""
_MODE: Final = 0o644
"""Objects have no modes."""


def hash_objects(
    listing: Listing, progress: Callable[[int, int], None], stopping: threading.Event | None = None
) -> Metafile:
    """Reads all objects once, until one fails or `stopping` is set. Blocks."""
    length = choose_piece_length(listing.size)
    done, over = 0, stopping or threading.Event()

    def hashed(each: StoredObject) -> FileHash:
        return hash_stream(parts_of(listing, each, over), each.size, length)

    with ThreadPoolExecutor(THREADS, thread_name_prefix="objects") as pool:
        try:
            hashing = {pool.submit(hashed, each): each for each in listing.objects}
            for found in as_completed(hashing):
                found.result()
                done += hashing[found].size
                progress(done, listing.size)
        finally:
            over.set()
            pool.shutdown(wait=True, cancel_futures=True)
    expect_unchanged(listing)
    return metafile_of(_scan_of(listing), [found.result() for found in hashing], length)


def parts_of(listing: Listing, each: StoredObject, over: threading.Event) -> Iterator[bytes]:
    """Yields an object in parts. Raises `interrupted` before the next part once `over` is set."""
    for start in range(0, each.size, PART_BYTES):
        if over.is_set():
            raise TorrentdistError("interrupted")
        yield read_object(listing, each, start, min(each.size, start + PART_BYTES))


def read_object(listing: Listing, each: StoredObject, start: int, end: int) -> bytes:
    """Returns a part of an object. Raises an error if it is shorter."""
    try:
        read = partial(listing.storage.cat_file, each.location, start=start, end=end)
        data = bytes(past_old_connections(read))
    except FileNotFoundError:
        raise TorrentdistError("changed_while_reading", path=each.location) from None
    except Exception as exc:  # a storage has errors of its own library
        raise TorrentdistError("storage_failed", url=each.location, detail=reason_of(exc)) from exc
    if len(data) != end - start:
        raise TorrentdistError("changed_while_reading", path=each.location)
    return data


def expect_unchanged(listing: Listing) -> None:
    """Raises an error if an object was added, removed or written since it was listed."""
    now = list_objects(listing.url)
    if now.objects != listing.objects:
        changed = set(now.objects) ^ set(listing.objects)
        raise TorrentdistError("changed_while_reading", path=min(each.location for each in changed))


def _scan_of(listing: Listing) -> Scan:
    files = tuple(
        ScannedFile(each.path.encode(), each.size, mtime_ns=0, ctime_ns=0, inode=0, mode=_MODE)
        for each in listing.objects
    )
    return Scan(listing.url.encode(), listing.single, files, (), ())
