"""A plug-in whose calls raise errors of Python, as long as files of its folder say so."""

from __future__ import annotations

from pathlib import Path

from .folder import FolderDistributor


class FailsTo(FolderDistributor):
    """`upload` and `cleanup` note each call in a file of that name. They fail while it exists."""

    def upload(self, dir_path: Path, bundle_id: str) -> Path:
        self._fail("fails-to-upload", bundle_id)
        return super().upload(dir_path, bundle_id)

    def cleanup(self, bundle_id: str) -> None:
        self._fail("fails-to-cleanup", bundle_id)
        super().cleanup(bundle_id)

    def _fail(self, what: str, bundle_id: str) -> None:
        calls = self._folder / what
        if calls.exists():
            with calls.open("a") as out:
                out.write(f"{bundle_id}\n")
            raise ValueError(f"this plug-in {what}")
