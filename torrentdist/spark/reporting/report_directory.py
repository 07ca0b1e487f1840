"""The directory of a report: the files that belong to it, and how a new report replaces an older
one.

Always: only files that the manifest names are deleted, and a report is put in place when it is
complete.
Never: write into a directory that holds something else.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.view import decode_json

MANIFEST = "torrentdist-report.json"
PAGE, TABLES = "report.html", "tables"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    files: list[str]
    """Files of the last report, relative to its directory."""


class ReportDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path

    def claim(self) -> None:
        """Creates and marks the directory. Raises an error if it holds something else or is not
        writable."""
        with self._disk_errors():
            self.path.mkdir(parents=True, exist_ok=True)
            marked = (self.path / MANIFEST).is_file()
            foreign = sorted(found.name for found in self.path.iterdir()) if not marked else []
            if foreign:
                raise TorrentdistError("not_a_report", path=str(self.path), found=foreign[0])
            self._remember(self._files())

    @contextlib.contextmanager
    def work(self) -> Iterator[Path]:
        """Provides a temporary directory on the same file system."""
        with tempfile.TemporaryDirectory(prefix=".work-", dir=self.path) as folder:
            yield Path(folder)

    def publish(self, work: Path) -> None:
        """Replaces the older report by the page and the tables in `work`."""
        with self._disk_errors():
            made = [path for path in (work / TABLES).rglob("*") if path.is_file() and path.name[0] not in "._"]
            new = [path.relative_to(work).as_posix() for path in made]
            old = self._files()
            self._remember(sorted({*old, *new, PAGE}))
            for name in old:
                if name != PAGE:  # a reader of the page never finds it missing
                    self._delete(name)
            for name in [*new, PAGE]:
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                (work / name).replace(self.path / name)
            self._remember([*new, PAGE])

    def _files(self) -> list[str]:
        path = self.path / MANIFEST
        try:
            return decode_json(path.read_bytes(), Manifest).files if path.exists() else []
        except msgspec.DecodeError as exc:
            raise TorrentdistError("not_a_report", path=str(self.path), found=f"{MANIFEST}: {exc}") from None

    def _remember(self, files: list[str]) -> None:
        new = self.path / f".{MANIFEST}"
        new.write_bytes(msgspec.json.encode(Manifest(files=files)))
        new.replace(self.path / MANIFEST)

    def _delete(self, name: str) -> None:
        path = self.path / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            return
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it holds files of somebody else
            path.parent.rmdir()

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            path = exc.filename if isinstance(exc.filename, str) else str(self.path)
            raise TorrentdistError("disk_error", path=path, detail=exc.strerror or str(exc)) from None
