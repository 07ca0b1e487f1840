"""A plug-in that moves files through storage that every host can reach, by fsspec: S3, HDFS, a
mounted directory.

Always: `<url>/<bundle id>/<digest>/` contains one object per content, named by its hash.
`complete.json` is written last, and readers ignore a bundle without it. No name from a bundle
becomes a name in the storage.
Never: delete anything but `<url>/<bundle id>/<digest>`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import msgspec
from fsspec.asyn import AsyncFileSystem

from torrentdist.bundle.metafile import FileEntry, Metafile, parse_metafile
from torrentdist.distributor.plugin_files import (
    complete_file,
    complete_files,
    drop_metafiles,
    identity,
    in_parallel,
    keep_metafile,
    prepared,
    read_metafile,
    read_options,
)
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import bundle_id as checked_bundle_id
from torrentdist.model.ids import digest as checked_digest
from torrentdist.model.storage_answers import bound_requests, past_old_connections, reason_of
from torrentdist.model.wire.view import decode_json

_MARKER = "complete.json"
_BLOCK = 8 * 1024 * 1024


class FsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str
    """Location of the bundles, the same on every host: `s3://bucket/prefix`, `hdfs://host/path`,
    `file:///path`."""
    storage_options: dict[str, Any] = {}
    """Options passed unchanged to fsspec. Of the synchronous file systems, webhdfs gets
    `stall_secs`; others (hdfs, file) have timeouts of their own."""
    stall_secs: float = 60.0
    """Seconds after which an unanswered request fails. Applies to asynchronous storage (s3, gcs,
    http) and to webhdfs."""
    threads: int = 8
    """Objects in progress at once. Each takes up to 8 MiB of memory."""


class StoredManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The plug-in's metafile, and the content of `complete.json`: it names the object of each
    file."""

    schema: int = 1
    url: str
    files: list[StoredFile]
    metafile: bytes
    """The bundle's own v2 metafile."""


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    size: int
    object: str
    """Name of the object. Empty for an empty file, which has none."""


class FsCodeDistributor:
    """Uploads each content once, and downloads it in blocks."""

    def prepare(self, conf: Mapping[str, Any]) -> None:
        self._options = read_options(conf, FsOptions)
        self._host, self._data_dir = prepared(conf)
        # Listings must be fresh: other hosts write what this one waits for.
        settings = {"auto_mkdir": True} if self._options.url.startswith(("file:", "/")) else {}
        settings |= {"use_listings_cache": False, "skip_instance_cache": True, **self._options.storage_options}
        self._fs, root = fsspec.url_to_fs(self._options.url, **settings)
        self._root = str(root).rstrip("/")
        if not isinstance(self._fs, AsyncFileSystem):
            bound_requests(self._fs, self._options.stall_secs)
        self._timeout = {"timeout": self._options.stall_secs} if isinstance(self._fs, AsyncFileSystem) else {}

    def upload(self, dir_path: Path, bundle_id: str) -> Path:
        metafile = identity(self._host, bundle_id, dir_path)
        place = self._place(bundle_id, metafile)
        marker = msgspec.json.encode(self._stored(bundle_id, metafile))
        contents = {file.root: file for file in metafile.files if file.size}
        with self._storage(bundle_id):
            there = self._sizes(place)
            missing = [file for file in contents.values() if there.get(_name(file)) != file.size]
            in_parallel(partial(self._put, dir_path, place), missing, threads=self._options.threads)
            there = self._sizes(place)
            if short := [file.path for file in contents.values() if there.get(_name(file)) != file.size]:
                raise TorrentdistError("corrupt", path=short[0], detail="the storage has not all of its bytes")
            past_old_connections(partial(self._fs.pipe_file, f"{place}/{_MARKER}", marker))
        return keep_metafile(self._data_dir, bundle_id, metafile.digest, marker)

    def download(self, dest_dir: Path, bundle_id: str, metafile: Path) -> list[Path]:
        marker = read_metafile(metafile)
        wanted = self._checked(bundle_id, marker)
        place = self._place(bundle_id, wanted)
        with self._storage(bundle_id):
            if self._marker(place) != marker:
                raise TorrentdistError("bundle_unavailable", id=bundle_id, detail="its upload has not finished")
        complete = partial(self._complete, bundle_id, place)
        return complete_files(dest_dir, wanted, complete, threads=self._options.threads)

    def get_replication_count(self, bundle_id: str) -> int:
        """Returns the number of holders. Without any, the storage counts as one if it has the
        bundle."""
        holders = len(self._host.holders(bundle_id))
        if holders:
            return holders
        with self._storage(bundle_id):
            return int(any(self._marker(place) is not None for place in self._places(bundle_id)))

    def cleanup(self, bundle_id: str) -> None:
        with self._storage(bundle_id):
            for place in self._places(bundle_id):
                with suppress(FileNotFoundError):
                    self._fs.rm_file(f"{place}/{_MARKER}")  # first: a reader must not see half of it
                with suppress(FileNotFoundError):
                    self._fs.rm(place, recursive=True)
            with suppress(OSError, NotImplementedError):  # it isn't empty, or the storage has no directories
                self._fs.rmdir(self._home(bundle_id))
        drop_metafiles(self._data_dir, bundle_id)

    def close(self) -> None:
        pass

    def _home(self, bundle_id: str) -> str:
        return f"{self._root}/{checked_bundle_id(bundle_id)}"

    def _place(self, bundle_id: str, metafile: Metafile) -> str:
        return f"{self._home(bundle_id)}/{metafile.digest}"

    def _places(self, bundle_id: str) -> list[str]:
        """Returns the directories of all contents that were uploaded under this id. Their names are
        digests."""
        home = self._home(bundle_id)
        try:
            found = self._fs.ls(home, detail=False, **self._timeout)
        except FileNotFoundError:
            return []
        names = {str(path).rstrip("/").rpartition("/")[2] for path in found}
        return [f"{home}/{name}" for name in sorted(names) if _is_digest(name)]

    def _stored(self, bundle_id: str, metafile: Metafile) -> StoredManifest:
        url = f"{self._options.url.rstrip('/')}/{bundle_id}/{metafile.digest}"
        files = [StoredFile(path=file.path, size=file.size, object=_name(file)) for file in metafile.files]
        return StoredManifest(url=url, files=files, metafile=metafile.raw)

    def _checked(self, bundle_id: str, marker: bytes) -> Metafile:
        """Returns the v2 metafile in the plug-in's metafile. Raises an error unless the latter is
        exactly what this host would write."""
        try:
            stored = decode_json(marker, StoredManifest)
        except msgspec.MsgspecError as exc:
            raise TorrentdistError("invalid_metafile", detail=f"it is not one of FsCodeDistributor: {exc}") from exc
        metafile = parse_metafile(stored.metafile)
        if stored != self._stored(bundle_id, metafile):
            detail = f"it points to {stored.url}, which is not this bundle's place below {self._options.url}"
            raise TorrentdistError("invalid_metafile", detail=detail)
        return metafile

    def _sizes(self, place: str) -> dict[str, int]:
        found = self._fs.find(place, detail=True, **self._timeout)
        return {str(path).rpartition("/")[2]: int(info["size"]) for path, info in found.items()}

    def _marker(self, place: str) -> bytes | None:
        try:
            return self._object(f"{place}/{_MARKER}")
        except FileNotFoundError:
            return None

    def _put(self, dir_path: Path, place: str, file: FileEntry) -> None:
        past_old_connections(partial(self._fs.put_file, str(dir_path / file.path), f"{place}/{_name(file)}"))

    def _complete(self, bundle_id: str, place: str, path: Path, file: FileEntry) -> None:
        complete_file(path, file, partial(self._read, bundle_id, f"{place}/{_name(file)}", file.size))

    def _read(self, bundle_id: str, source: str, size: int, offset: int) -> Iterator[bytes]:
        for start in range(offset, size, _BLOCK):
            with self._storage(bundle_id):
                block = self._object(source, start=start, end=min(start + _BLOCK, size))
            yield block

    def _object(self, source: str, **part: int) -> bytes:
        return bytes(past_old_connections(partial(self._fs.cat_file, source, **part, **self._timeout)))

    @contextmanager
    def _storage(self, bundle_id: str) -> Iterator[None]:
        """Raises the storage's errors as `bundle_unavailable`."""
        try:
            yield
        except TorrentdistError:
            raise
        except Exception as exc:
            detail = f"{self._options.url} answers {reason_of(exc)}"
            raise TorrentdistError("bundle_unavailable", id=bundle_id, detail=detail) from exc


def _name(file: FileEntry) -> str:
    return file.root.hex()


def _is_digest(name: str) -> bool:
    try:
        checked_digest(name)
    except TorrentdistError:
        return False
    return True
