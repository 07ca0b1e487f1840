"""Finds files of events: their total size at a local path, and the files that daemons still write
to.

Always: a local path without events is refused before Spark starts. Open files are read as they are
at that moment.
Never: guess about a path that only Spark can reach, or change a file.
"""

import glob
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from torrentdist.model.errors import TorrentdistError
from torrentdist.spark.spark_session import configured

FEW_BYTES = 32 << 20
"""Smaller reports are made in one partition, by a JVM that is optimised for a quick start."""
SHRINK = 10
"""Estimated ratio of lines to their compressed file."""
_OPEN = re.compile(r"_events-.*\.jsonl")
_CLOSED = re.compile(r"[^_.].*\.jsonl.*")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


class EventSource(NamedTuple):
    path: str
    """The path as the user gave it, which Spark reads."""
    local: tuple[Path, ...] | None
    """Directories and files on this host; None if only Spark can list them."""

    def files(self) -> Iterator[Path]:
        """Yields open and closed files on this host."""
        for top in self.local or ():
            yield from _files_below(top)

    def open_files(self) -> list[Path]:
        return [path for path in self.files() if _OPEN.fullmatch(path.name)]

    def size(self) -> int | None:
        """Returns the approximate number of bytes of all lines; None if unknown."""
        return None if self.local is None else sum(map(_bytes_of_lines, self.files()))

    def snapshot(self, target: Path) -> list[str]:
        """Links open files into `target` under names that Spark reads. Returns the further paths to
        read."""
        found = self.open_files()
        for number, path in enumerate(found):
            target.mkdir(exist_ok=True)
            _link(path, target / f"{number}-{path.name.removeprefix('_')}")
        return [str(target)] if found and target.is_dir() else []


def find_events(path: str, settings: Mapping[str, str], *, empty_ok: bool = False) -> EventSource:
    """Raises `events_not_found` or `no_events` if this host can tell. `empty_ok`: files may come
    later."""
    where = _local_path(path, settings)
    if where is None:
        return EventSource(path, None)
    found = tuple(Path(name) for name in glob.glob(where)) if glob.has_magic(where) else (Path(where),)
    existing = tuple(top for top in found if top.exists())
    if not existing:
        raise TorrentdistError("events_not_found", path=path, detail="no such file or directory")
    source = EventSource(path, existing)
    if not empty_ok and not source.size():
        raise TorrentdistError("no_events", path=path)
    return source


def _local_path(path: str, settings: Mapping[str, str]) -> str | None:
    scheme = _SCHEME.match(path)
    if scheme is not None:
        where = path.removeprefix("file://").removeprefix("file:")
        local = scheme[1] == "file" and where.startswith("/")
    else:
        where = path
        key = "spark.hadoop.fs.defaultFS"
        default = settings.get(key) or configured(key) or "file:"
        local = default.startswith("file:") and not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & os.environ.keys()
    return where if local and "{" not in where else None


def _files_below(top: Path) -> Iterator[Path]:
    """Yields the files that Spark would read, and open ones. Spark skips names that start with _ or
    a dot."""
    if not top.is_dir():
        yield from (path for path in (top,) if _is_wanted(path.name))
        return
    for folder, folders, names in os.walk(top, onerror=_refuse, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        yield from (Path(folder, name) for name in names if _is_wanted(name))


def _is_wanted(name: str) -> bool:
    return bool(_CLOSED.fullmatch(name) or _OPEN.fullmatch(name))


def _refuse(error: OSError) -> None:
    raise error


def _bytes_of_lines(path: Path) -> int:
    try:
        size = path.stat().st_size
    except FileNotFoundError:  # closed or shipped meanwhile
        return 0
    return size if path.suffix == ".jsonl" else size * SHRINK


def _link(path: Path, target: Path) -> None:
    """Links the file, which survives its renaming by the daemon. Copies it on another file
    system."""
    try:
        os.link(path, target)
    except FileNotFoundError:
        return  # closed meanwhile: it is read under its other name
    except OSError:
        shutil.copyfile(path, target)
