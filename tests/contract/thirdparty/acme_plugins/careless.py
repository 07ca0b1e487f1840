"""Plug-ins that each break the contract in one way. The conformance suite must catch them."""

from __future__ import annotations

from pathlib import Path

from .folder import FolderDistributor


class SwallowsErrors(FolderDistributor):
    """Counts a failed download as a success."""

    def download(self, dest_dir: Path, bundle_id: str, metafile: Path) -> list[Path]:
        try:
            return super().download(dest_dir, bundle_id, metafile)
        except OSError:
            return []


class CleansByPrefix(FolderDistributor):
    """Removes b10 when b1 is removed."""

    def cleanup(self, bundle_id: str) -> None:
        for shared in self._folder.glob(f"{bundle_id}*"):
            super().cleanup(shared.name)


class KeepsWhatLiesThere(FolderDistributor):
    """Takes a half-written file of an earlier run for a complete one."""

    def download(self, dest_dir: Path, bundle_id: str, metafile: Path) -> list[Path]:
        before = {path: path.read_bytes() for path in dest_dir.rglob("*") if path.is_file()}
        downloaded = super().download(dest_dir, bundle_id, metafile)
        for path, content in before.items():
            path.write_bytes(content)
        return downloaded
