"""The directory in which this host's bundles lie by their ids: its links, its modes, and the
program for Spark beside it.

Always: a link appears, changes and goes in one step. Only one supervisor at a time uses a
directory, and nobody but it and root can write there. Who may read bundles as files can follow the
links, and nobody else learns which there are.
Never: touch what is neither a link nor the supervisor's own file.
It blocks: call it in threads.

    <ids_dir>/<bundle id>            a link to the content
    <ids_dir>/.leases/<bundle id>    what programs lock while they use a bundle
    <ids_dir>/.supervisor            locked by the supervisor
    <ids_dir>.spark/python           the program that is spark.pyspark.python
    <ids_dir>.spark/gateway          the URL of this host's gateway
"""

import fcntl
import os
import shlex
import stat
import sys
from pathlib import Path
from typing import Final

from torrentdist.bundle.files.durability import write_durably
from torrentdist.bundle.store.store_readers import admit_to
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.wording import cause_text
from torrentdist.supervisor.ids import bundle_python

LEASES: Final = ".leases"
_OWNER: Final = ".supervisor"
_NEW: Final = ".new-"
SPARK: Final = ".spark"
PROGRAM: Final = "python"
GATEWAY: Final = "gateway"
FIND_PYTHON: Final = """for python in {} "$(command -v python3)"; do
    [ -x "$python" ] && exec "$python" -IS "$0" "$@"
done
echo "torrentdist: error: this host has no python3" >&2
exit 127
"""


class IdsDirectory:
    """Open it with `IdsDirectory.open`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.leases = path / LEASES
        self.spark = path.with_name(path.name + SPARK)
        self._lock = lock

    @classmethod
    def open(cls, path: Path, readable_by: str) -> "IdsDirectory":
        """Makes the directory, or takes it over. Raises `config_invalid` if that is not
        possible."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            path = path.resolve()
            _refuse_foreign(path)
            lock = _take(path)
        except OSError as exc:
            raise _refused(cause_text(exc)) from exc
        try:
            made = cls(path, lock)
            made.leases.mkdir(exist_ok=True)
            admit_to(path, readable_by)
            admit_to(made.leases, readable_by)
            made.spark.mkdir(exist_ok=True)
            _refuse_foreign(made.spark)
            made.spark.chmod(0o755)
            for left in path.glob(f"{_NEW}*"):
                left.unlink()
        except OSError as exc:
            os.close(lock)
            raise _refused(cause_text(exc)) from exc
        except BaseException:
            os.close(lock)
            raise
        return made

    async def close(self) -> None:
        """Lets another supervisor use the directory. The links stay: their bundles do, too."""
        os.close(self._lock)

    def equip(self, gateway: str) -> None:
        """Writes the program for Spark, and where it finds this host's gateway."""
        _write(self.spark / GATEWAY, f"{gateway}\n".encode(), 0o644)
        _write(self.spark / PROGRAM, program(os.path.realpath(sys.executable)), 0o755)

    def links(self) -> dict[str, str]:
        """Returns the target of each link."""
        with os.scandir(self.path) as entries:
            return {entry.name: os.readlink(entry.path) for entry in entries if entry.is_symlink()}

    def link(self, bundle: BundleId) -> Path:
        return self.path / bundle

    def put(self, bundle: BundleId, target: str) -> None:
        link, new = self.path / bundle, self.path / f"{_NEW}{bundle}"
        if not link.is_symlink() and link.exists():
            raise TorrentdistError("disk_error", path=str(link), detail="it is in the way of a bundle's link")
        new.unlink(missing_ok=True)
        new.symlink_to(target)
        new.rename(link)

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)


def program(interpreter: str) -> bytes:
    """Returns the text of the program for Spark. It is a shell's and Python's at once: this
    supervisor's Python without its packages runs it, or else any Python, such as a container's."""
    source = Path(bundle_python.__file__).read_text(encoding="utf-8").split('"""', 2)[2]
    return f"#!/bin/sh\n'''':\n{FIND_PYTHON.format(shlex.quote(interpreter))}'''\n{source.lstrip()}".encode()


def _write(path: Path, data: bytes, mode: int) -> None:
    if not path.exists() or path.read_bytes() != data:
        write_durably(path, data)
    path.chmod(mode)


def _refuse_foreign(path: Path) -> None:
    """Refuses a directory in which another user could put what executors run."""
    found = path.stat()
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _refused(f"other users can write into {path}")


def _take(path: Path) -> int:
    lock = os.open(path / _OWNER, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise _refused(f"another supervisor of this host uses {path}") from None
    return lock


def _refused(detail: str) -> TorrentdistError:
    return TorrentdistError("config_invalid", origin="supervisor.ids_dir", detail=detail)
