"""The default plug-in: transfers files in the swarm, from the uploader, the holders and other
hosts.

Always: its metafile is the bundle's own v2 metafile. A fetched bundle is seeded from then on.
Never: know libtorrent. The host's engine does the work.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from torrentdist.bundle.files.durability import disk_failures
from torrentdist.bundle.metafile import FileEntry, parse_metafile
from torrentdist.distributor.plugin_files import (
    complete_file,
    drop_metafiles,
    identity,
    keep_metafile,
    kept_for,
    kept_metafiles,
    prepared,
    read_metafile,
    read_options,
)
from torrentdist.model.errors import TorrentdistError


class TorrentOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    stall_secs: float = 120.0
    """Seconds without a new byte after which a download fails. The received bytes are kept."""


class TorrentCodeDistributor:
    """Lets the host's engine fetch and seed."""

    joins_uploads = True
    keeps_limits = True

    def prepare(self, conf: Mapping[str, Any]) -> None:
        self._options = read_options(conf, TorrentOptions)
        self._host, self._data_dir = prepared(conf)

    def upload(self, dir_path: Path, bundle_id: str) -> Path:
        metafile = identity(self._host, bundle_id, dir_path)
        kept = keep_metafile(self._data_dir, bundle_id, metafile.digest, metafile.raw)
        self._host.seed(metafile, dir_path)
        return kept

    def download(self, dest_dir: Path, bundle_id: str, metafile: Path) -> list[Path]:
        wanted = parse_metafile(read_metafile(metafile))
        keep_metafile(self._data_dir, bundle_id, wanted.digest, wanted.raw)
        self._host.fetch_by_swarm(wanted, dest_dir, stall_secs=self._options.stall_secs)
        small = {file.path for file in wanted.packed.files}  # The host writes and checks them.
        return [
            Path(f"{dest_dir}/{file.path}") if file.path in small else _whole(f"{dest_dir}/{file.path}", file)
            for file in wanted.files
        ]

    def get_replication_count(self, bundle_id: str) -> int:
        return len(self._host.holders(bundle_id))

    def cleanup(self, bundle_id: str) -> None:
        """Leaves the swarm unless another bundle has the same content. The host may no longer know
        this bundle."""
        for digest in kept_metafiles(self._data_dir, bundle_id).values():
            if kept_for(self._data_dir, digest) == {bundle_id}:
                self._host.stop_seeding(digest)
        drop_metafiles(self._data_dir, bundle_id)

    def close(self) -> None:
        pass


def _whole(place: str, file: FileEntry) -> Path:
    """Returns the path of a fetched file. Creates an empty file, because the swarm transfers
    none."""
    path = Path(place)
    if file.size == 0:
        with disk_failures(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        complete_file(path, file, lambda offset: ())
    try:
        found = os.stat(place)
    except OSError:
        found = None
    if found is None or not stat.S_ISREG(found.st_mode) or found.st_size != file.size:
        raise TorrentdistError("corrupt", path=file.path, detail=f"its {file.size} bytes are not on disk")
    return path
