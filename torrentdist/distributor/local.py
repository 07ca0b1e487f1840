"""A plug-in that downloads files over HTTP from any holder that ZooKeeper names.

Always: a holder that fails, stalls or sends wrong bytes costs one attempt, and the next holder
continues at the byte where it stopped. A download ends when no holder delivers anything new. Its
metafile is the bundle's v2 metafile.
Never: need the swarm.
"""

import random
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from torrentdist.bundle.metafile import FileEntry, parse_metafile
from torrentdist.distributor.plugin_files import (
    complete_file,
    complete_files,
    drop_metafiles,
    identity,
    keep_metafile,
    prepared,
    read_metafile,
    read_options,
)
from torrentdist.distributor.protocol import Holder
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wording import cause_text


class LocalOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    stall_secs: float = 30.0
    """Seconds after which a silent holder is given up."""
    threads: int = 4
    """Files in progress at once."""


class HolderFailed(Exception):
    """This holder did not deliver what was requested. Another one may."""


class LocalCodeDistributor:
    """Downloads from the holders in random order, a few files at a time."""

    def prepare(self, conf: Mapping[str, Any]) -> None:
        self._options = read_options(conf, LocalOptions)
        self._host, self._data_dir = prepared(conf)

    def upload(self, dir_path: Path, bundle_id: str) -> Path:
        """Transfers nothing: this host serves the files as soon as it is a holder."""
        metafile = identity(self._host, bundle_id, dir_path)
        return keep_metafile(self._data_dir, bundle_id, metafile.digest, metafile.raw)

    def download(self, dest_dir: Path, bundle_id: str, metafile: Path) -> list[Path]:
        wanted = parse_metafile(read_metafile(metafile))
        return complete_files(dest_dir, wanted, partial(self._complete, bundle_id), threads=self._options.threads)

    def get_replication_count(self, bundle_id: str) -> int:
        return len(self._host.holders(bundle_id))

    def cleanup(self, bundle_id: str) -> None:
        drop_metafiles(self._data_dir, bundle_id)

    def close(self) -> None:
        pass

    def _complete(self, bundle_id: str, path: Path, file: FileEntry) -> None:
        """Completes one file, from as many holders as necessary."""
        try:
            return complete_file(path, file, _nowhere)
        except HolderFailed:
            pass
        before = -1
        while (have := path.stat().st_size) > before:
            before = have
            failures = []
            for holder in _shuffled(self._host.holders(bundle_id)):
                try:
                    return complete_file(path, file, partial(self._read, holder, bundle_id, file))
                except HolderFailed as exc:
                    failures.append(f"{holder.id}: {exc}")
                except TorrentdistError as exc:
                    if exc.code != "corrupt":
                        raise
                    failures.append(f"{holder.id}: {exc}")
        detail = "; ".join(failures) or "no live master holds it"
        raise TorrentdistError("bundle_unavailable", id=bundle_id, detail=detail)

    def _read(self, holder: Holder, bundle_id: str, file: FileEntry, offset: int) -> Iterator[bytes]:
        url = f"{holder.url}/v1/bundles/{quote(bundle_id, safe='')}/files/{quote(file.path)}"
        headers = {"Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        timeout = httpx.Timeout(self._options.stall_secs)
        try:
            with self._host.http().stream("GET", url, headers=headers, timeout=timeout) as response:
                if problem := _refusal(response, file, offset):
                    raise HolderFailed(problem)
                yield from response.iter_raw()
        except (httpx.HTTPError, httpx.InvalidURL) as exc:
            raise HolderFailed(cause_text(exc) or type(exc).__name__) from exc


def _shuffled(holders: list[Holder]) -> list[Holder]:
    """Returns the holders in random order, which spreads the load if many hosts ask at once."""
    return random.sample(holders, len(holders))


def _refusal(response: httpx.Response, file: FileEntry, offset: int) -> str:
    """Returns why the body is not the rest of the file from `offset` on; empty if it is."""
    if offset and response.status_code == httpx.codes.PARTIAL_CONTENT:
        wanted = f"bytes {offset}-{file.size - 1}/{file.size}"
        given = response.headers.get("Content-Range", "")
        return "" if given == wanted else f"it sent {given!r} instead of {wanted!r}"
    if offset and response.status_code == httpx.codes.OK:
        return "it cannot go on in the middle of a file"
    return "" if response.status_code == httpx.codes.OK else f"status {response.status_code}"


def _nowhere(offset: int) -> Iterator[bytes]:
    """Yields no bytes, which is enough for a file that is already complete."""
    raise HolderFailed(f"nothing from {offset} on")
