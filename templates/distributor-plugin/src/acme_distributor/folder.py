"""Moves bundles through a directory that all hosts share, such as an NFS mount.

torrentdist does the rest: it verifies every byte before it publishes, applies modes and symlinks,
keeps replica records, and deletes the host's own copies.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class FolderDistributor:
    def prepare(self, conf: Mapping[str, Any]) -> None:
        """Called once, first. `conf["options"]` is [codedistributor.options] as configured."""
        self._folder = Path(conf["options"]["folder"])
        self._data_dir = Path(conf["data_dir"])
        self._host = conf["host"]

    def upload(self, dir_path: Path, bundle_id: str) -> Path:
        """Makes the files available to other hosts. Downloaders get the returned file."""
        shutil.copytree(dir_path, self._folder / bundle_id, dirs_exist_ok=True)
        files = [str(path.relative_to(dir_path)) for path in sorted(dir_path.rglob("*")) if path.is_file()]
        metafile = self._data_dir / f"{bundle_id}.json"
        metafile.write_text(json.dumps(files))
        return metafile

    def download(self, dest_dir: Path, bundle_id: str, metafile: Path) -> list[Path]:
        """Returns when every file is below `dest_dir`. Raises an error if one is missing."""
        found = []
        for name in json.loads(metafile.read_text()):
            path = dest_dir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._folder / bundle_id / name, path)
            found.append(path)
        return found

    def get_replication_count(self, bundle_id: str) -> int:
        """Returns the number of hosts from which the bundle can be downloaded now."""
        return len(self._host.holders(bundle_id))

    def cleanup(self, bundle_id: str) -> None:
        """Drops what the plug-in keeps of a bundle that was removed from the cluster."""
        shutil.rmtree(self._folder / bundle_id, ignore_errors=True)
        (self._data_dir / f"{bundle_id}.json").unlink(missing_ok=True)

    def close(self) -> None:
        """Called once, last."""
