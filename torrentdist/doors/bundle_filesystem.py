"""The fsspec file system `torrentdist://ID/path`, with which pandas, PyArrow, DuckDB, Dask and
others read from bundles.

Always: a bundle that is on this host is read from its files, without another process between. One
that still arrives is read through the host's gateway, part by part. On a host without a gateway,
and where [trust] wants signatures, `Client.path` says where the bundle lies.
Never: write. Never take a failure for a missing file.
"""

import errno
import os
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from fsspec import AbstractFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.implementations.local import LocalFileOpener
from fsspec.spec import AbstractBufferedFile
from fsspec.utils import isfilelike, tokenize

from torrentdist.api.async_client import TIMEOUT_SECS, StrPath
from torrentdist.api.blocking_client import Client
from torrentdist.bundle.bundle_tree import BundleTree, NodeKind, TreeNode
from torrentdist.bundle.metafile import parse_metafile
from torrentdist.doors.filesystem_entries import bundle_entry, entry_of, missing_as_file
from torrentdist.doors.gateway_reader import GatewayAway, GatewayReader
from torrentdist.model.errors import TorrentdistError

BLOCK_BYTES = 8 * 1024 * 1024
"""How much of an arriving file one request asks for."""


class TorrentdistFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec is untyped
    """Bundles as directories below `torrentdist://`. The arguments are those of
    `torrentdist.Client`."""

    protocol = "torrentdist"
    root_marker = ""
    blocksize = BLOCK_BYTES

    def __init__(
        self,
        masters: Any = None,
        *,
        token_file: StrPath | None = None,
        supervisor: str | None = None,
        config_file: StrPath | None = None,
        timeout: float = TIMEOUT_SECS,
        **options: Any,
    ) -> None:
        """`timeout`: the most seconds for which a host without a gateway fetches a bundle."""
        super().__init__(**options)
        self._client = Client(masters, token_file=token_file, supervisor=supervisor, config_file=config_file)
        self._timeout = timeout
        self._trees: dict[str, BundleTree] = {}
        self._places: dict[str, Path] = {}

    @property
    def fsid(self) -> str:
        return "torrentdist"

    # what there is

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        bundle, inner = self._split(path)
        if not bundle:
            found = [bundle_entry(view) for view in self._client.bundles()]
        else:
            node = self._node(bundle, inner)
            nodes = self._tree(bundle).list(inner) if node.kind is NodeKind.DIRECTORY else [node]
            found = [entry_of(bundle, each) for each in nodes]
        return found if detail else [entry["name"] for entry in found]

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        bundle, inner = self._split(path)
        if not bundle:
            return {"name": "", "size": 0, "type": "directory"}
        return entry_of(bundle, self._node(bundle, inner))

    # fsspec's own three answer no if they cannot find out
    def exists(self, path: str, **options: Any) -> bool:
        return self._kind(path) is not None

    def isfile(self, path: str) -> bool:
        return self._kind(path) == NodeKind.FILE

    def isdir(self, path: str) -> bool:
        return self._kind(path) == NodeKind.DIRECTORY

    def _kind(self, path: str) -> str | None:
        with suppress(FileNotFoundError):
            return str(self.info(path)["type"])
        return None

    def invalidate_cache(self, path: str | None = None) -> None:
        """Forgets where bundles are and which files they have."""
        self._trees.clear()
        self._places.clear()

    def created(self, path: str) -> datetime:
        bundle, inner = self._split(path)
        self._node(bundle, inner)
        with missing_as_file(bundle):
            return datetime.fromtimestamp(self._client.bundle(bundle).created_at, UTC)

    def modified(self, path: str) -> datetime:
        """Returns when the bundle was made. It never changes."""
        return self.created(path)

    def ukey(self, path: str) -> str:
        """Returns a name of this content, which is the same in every cluster."""
        bundle, inner = self._split(path)
        file = self._node(bundle, inner).file
        return str(tokenize("torrentdist", "" if file is None else file.root.hex(), "" if file else path))

    # content

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> Any:
        bundle, inner = self._split(path)
        if mode != "rb":
            self._refuse_change(path)
        file = self._file(bundle, inner)
        local = self._local_file(bundle, inner)
        if local is not None:
            return LocalFileOpener(local, "rb", fs=self)
        return ArrivingFile(
            self, path, "rb", block_size or BLOCK_BYTES, cache_options=cache_options, size=file.size, **options
        )

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        bundle, inner = self._split(path)
        first, after, _ = slice(start, end).indices(self._file(bundle, inner).size)
        local = self._local_file(bundle, inner)
        if local is None:
            return self.read_part(path, first, after)
        with open(local, "rb") as file:
            file.seek(first)
            return file.read(max(0, after - first))

    def get_file(
        self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, outfile: Any = None, **options: Any
    ) -> None:
        bundle, inner = self._split(rpath)
        node = self._node(bundle, inner)
        local = self._local_file(bundle, inner) if node.file is not None else None
        if local is None or outfile is not None or isfilelike(lpath):
            super().get_file(rpath, lpath, callback=callback, outfile=outfile, **options)
            return
        os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        callback.set_size(node.file.size if node.file else 0)
        shutil.copyfile(local, lpath)
        callback.absolute_update(node.file.size if node.file else 0)

    def read_part(self, path: str, start: int, end: int) -> bytes:
        """Returns a part of a file through the gateway, in pieces that fit into memory twice."""
        bundle, inner = self._split(path)
        gateway = self._gateway
        assert gateway is not None
        real = self._file(bundle, inner).path
        return b"".join(
            gateway.read(bundle, real, at, min(at + BLOCK_BYTES, end)) for at in range(start, end, BLOCK_BYTES)
        )

    # changes, which are all refused

    def _refuse_change(self, path: Any, *_: Any, **__: Any) -> NoReturn:
        raise OSError(errno.EROFS, "a bundle never changes", str(path))

    mkdir = makedirs = rmdir = rm_file = cp_file = touch = pipe_file = put_file = mv = rm = _refuse_change

    # places

    @cached_property
    def _gateway(self) -> GatewayReader | None:
        config = self._client.configuration()
        url = config.client.supervisor
        return GatewayReader(url, config.supervisor.data_dir) if url and not config.trust.bundles else None

    def _split(self, path: Any) -> tuple[str, str]:
        """Returns the bundle's id and the path in it."""
        bundle, _, inner = self._strip_protocol(path).lstrip("/").partition("/")
        return bundle, inner

    def _node(self, bundle: str, inner: str) -> TreeNode:
        found = self._tree(bundle).find(inner)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{bundle}/{inner}")
        return found

    def _file(self, bundle: str, inner: str) -> Any:
        node = self._node(bundle, inner)
        if node.file is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), f"{bundle}/{inner}")
        return node.file

    def _tree(self, bundle: str) -> BundleTree:
        """Returns the bundle's files, which never change."""
        if bundle not in self._trees:
            self._trees[bundle] = BundleTree(self._metafile(bundle))
        return self._trees[bundle]

    def _metafile(self, bundle: str) -> Any:
        place = self._place(bundle)
        if place is not None:
            with suppress(OSError, TorrentdistError):
                return parse_metafile((place.parent / "metafile").read_bytes())
        with missing_as_file(bundle):
            return self._client.metafile(bundle)

    def _local_file(self, bundle: str, inner: str) -> Path | None:
        """Returns a file on this host; None if it has to be read through the gateway."""
        seen = self._places.get(bundle)
        if seen is not None and os.access(seen / inner, os.R_OK):
            return seen / inner
        place = self._place(bundle)  # it has arrived meanwhile, or was dropped to make room
        return place / inner if place is not None and os.access(place / inner, os.R_OK) else None

    def _place(self, bundle: str) -> Path | None:
        """Returns the bundle's directory on this host; None if it is not here yet."""
        try:
            if self._gateway is None:
                raise GatewayAway("none is asked")
            found = self._gateway.local(bundle)
        except GatewayAway:
            with missing_as_file(bundle):
                found = self._client.path(bundle, timeout=self._timeout)
        if found is not None:
            self._places[bundle] = found
        return found


class ArrivingFile(AbstractBufferedFile):  # type: ignore[misc]
    """A file of a bundle that has not arrived completely. It is read through the gateway."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = self.fs.read_part(self.path, start, min(end, self.size))
        return data
