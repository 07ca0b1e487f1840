"""Plug-ins that break the contract, each in one way: the conformance suite must catch them."""

from __future__ import annotations

from pathlib import Path

from .folder import FolderDistributor


class SwallowsErrors(FolderDistributor):
    """A failed download counts as a success."""

    def download(self, dest_dir: Path, bundle_id: str, metafile: Path) -> list[Path]:
        try:
            return super().download(dest_dir, bundle_id, metafile)
        except OSError:
            return []


class CleansByPrefix(FolderDistributor):
    """Removing b1 removes b10."""

    def cleanup(self, bundle_id: str) -> None:
        for shared in self._folder.glob(f"{bundle_id}*"):
            super().cleanup(shared.name)


class KeepsWhatLiesThere(FolderDistributor):
    """A half-written file of an earlier run is taken for a whole one."""

    def download(self, dest_dir: Path, bundle_id: str, metafile: Path) -> list[Path]:
        before = {path: path.read_bytes() for path in dest_dir.rglob("*") if path.is_file()}
        downloaded = super().download(dest_dir, bundle_id, metafile)
        for path, content in before.items():
            path.write_bytes(content)
        return downloaded
