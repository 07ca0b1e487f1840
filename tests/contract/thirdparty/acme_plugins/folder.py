"""A third party's plug-in: bundles travel through a folder that all hosts share. It imports nothing
of torrentdist."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class FolderDistributor:
    def prepare(self, conf: Mapping[str, Any]) -> None:
        self._folder = Path(conf["options"]["folder"])
        self._data_dir = Path(conf["data_dir"])
        self._host = conf["host"]

    def upload(self, dir_path: Path, bundle_id: str) -> Path:
        shared = self._folder / bundle_id
        shutil.copytree(dir_path, shared, dirs_exist_ok=True)
        files = [str(path.relative_to(dir_path)) for path in sorted(dir_path.rglob("*")) if path.is_file()]
        metafile = self._data_dir / f"{bundle_id}.json"
        metafile.write_text(json.dumps({"files": files}))
        return metafile

    def download(self, dest_dir: Path, bundle_id: str, metafile: Path) -> list[Path]:
        downloaded = []
        for path in json.loads(metafile.read_text())["files"]:
            (dest_dir / path).parent.mkdir(parents=True, exist_ok=True)
            downloaded.append(Path(shutil.copyfile(self._folder / bundle_id / path, dest_dir / path)))
        return downloaded

    def get_replication_count(self, bundle_id: str) -> int:
        return len(self._host.holders(bundle_id))

    def cleanup(self, bundle_id: str) -> None:
        shutil.rmtree(self._folder / bundle_id, ignore_errors=True)

    def close(self) -> None:
        pass
