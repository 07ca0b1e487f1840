"""Where the files of workers lie below the data directory, and how they go away.

Always: what a worker printed stays for a while after the worker has left this host.
It blocks: call it in threads.

    <data>/workers/<job>/<k>/   the working directory: `bundle`, `deps/<bundle-id>`, a link to each
                                top-level entry of the bundle, and whatever the worker makes
    <data>/guard/<job>/<k>/     spec.json, status.json, lock, guardian.log, stdout.<offset>,
                                stderr.<offset>
    <data>/guard/<job>/peers.json, <data>/guard/lease.json
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from torrentdist.bundle.files.durability import write_durably
from torrentdist.launcher.run.run_files import GUARDIAN_LOG, LOCK, SPEC, STATUS
from torrentdist.model.ids import JobId
from torrentdist.supervisor.process.guardian_processes import forbid_starts
from torrentdist.supervisor.worker.heartbeat_files import FILE as HEARTBEAT
from torrentdist.supervisor.worker.worker_types import Key


@dataclass(frozen=True)
class Homes:
    """The directories of workers below the data directory."""

    data_dir: Path

    def work(self, key: Key) -> Path:
        """Returns the worker's working directory."""
        return self.data_dir / "workers" / key[0] / str(key[1])

    def guard(self, key: Key) -> Path:
        """Returns the directory that the supervisor shares with the worker's guardian."""
        return self.data_dir / "guard" / key[0] / str(key[1])

    def peers(self, job: JobId) -> Path:
        return self.data_dir / "guard" / job / "peers.json"

    @property
    def lease(self) -> Path:
        return self.data_dir / "guard" / "lease.json"

    def guards(self, job: str = "*") -> Iterator[tuple[Key, Path]]:
        """Yields every worker that has files here, with its guardian's directory."""
        for path in sorted((self.data_dir / "guard").glob(f"{job}/*/")):
            if path.name.isdigit():
                yield (JobId(path.parent.name), int(path.name)), path


def write_peers(homes: Homes, job: JobId, hosts: Mapping[str, str]) -> None:
    """Writes the addresses of a job's workers, as far as the leader knows them, for the workers to
    read."""
    data = msgspec.json.encode({"job": job, "workers": dict(sorted(hosts.items()))})
    path = homes.peers(job)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
    if not path.exists() or path.read_bytes() != data:
        write_durably(path, data)


def clean_up(homes: Homes, key: Key) -> None:
    """Removes the files of a worker that has left this host. Its output stays for a while."""
    work, home = homes.work(key), homes.guard(key)
    shutil.rmtree(work, ignore_errors=True)
    _remove_if_empty(work.parent)
    for name in (SPEC, STATUS, LOCK, GUARDIAN_LOG, HEARTBEAT):
        (home / name).unlink(missing_ok=True)
    if home.is_dir():
        os.utime(home)


def drop_old_output(homes: Homes, places: Collection[Key], keep_secs: float) -> None:
    """Removes the output of workers that left this host more than `keep_secs` ago, and the empty
    directories of their jobs."""
    for key, home in homes.guards():
        if key not in places and time.time() - home.stat().st_mtime > keep_secs:
            shutil.rmtree(home, ignore_errors=True)
    jobs = {key[0] for key in places}
    for folder in (homes.data_dir / "guard").glob("*/"):
        if folder.name not in jobs and not any(folder.glob("*/")):
            (folder / "peers.json").unlink(missing_ok=True)
            _remove_if_empty(folder)


def drop_orphans(homes: Homes, places: Collection[Key]) -> None:
    """Removes directories of workers without a place here, which remain after a crash."""
    for work in (homes.data_dir / "workers").glob("*/*/"):
        key = JobId(work.parent.name), int(work.name) if work.name.isdigit() else -1
        if key not in places and forbid_starts(homes.guard(key)):
            clean_up(homes, key)
            shutil.rmtree(work, ignore_errors=True)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
