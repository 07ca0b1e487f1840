"""Where the files of workers lie below the data directory, and how they go away.

Always: what a worker printed stays for a while after the worker has left this host.
It blocks: call it in threads.

    <data>/workers/<job>/<k>/   the working directory: `bundle`, `deps/<bundle-id>`, a link to each
                                top-level entry of the bundle, and whatever the worker makes
    <data>/guard/<job>/<k>/     spec.json, status.json, lock, guardian.log, stdout.<offset>,
                                stderr.<offset>
    <data>/guard/<job>/<k>/sign/heartbeat
    <data>/guard/<job>/told/peers.json, <data>/guard/<job>/told/token
    <data>/guard/lease.json

A job sees of these its working directory, `sign` and `told`.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from torrentdist.bundle.files.durability import write_durably
from torrentdist.launcher.removal import empty
from torrentdist.launcher.run.run_files import GUARDIAN_LOG, LOCK, SPEC, STATUS
from torrentdist.log import get_logger
from torrentdist.model.ids import JobId
from torrentdist.supervisor.process.guardian_processes import forbid_starts
from torrentdist.supervisor.worker.heartbeat_files import FILE as HEARTBEAT
from torrentdist.supervisor.worker.heartbeat_files import SIGN
from torrentdist.supervisor.worker.worker_types import Key

log = get_logger()

TOLD_MODE, TOLD_FILE_MODE = 0o755, 0o644


@dataclass(frozen=True)
class Homes:
    """The directories of workers below the data directory.

    `remover` removes a directory that belongs to a user of jobs.
    """

    data_dir: Path
    remover: Callable[[str, int], None] = field(default=lambda path, _: shutil.rmtree(path), compare=False)

    def work(self, key: Key) -> Path:
        """Returns the worker's working directory."""
        return self.data_dir / "workers" / key[0] / str(key[1])

    def guard(self, key: Key) -> Path:
        """Returns the directory that the supervisor shares with the worker's guardian."""
        return self.data_dir / "guard" / key[0] / str(key[1])

    def sign(self, key: Key) -> Path:
        """Returns the directory of the worker's heartbeat file."""
        return self.guard(key) / SIGN

    def told(self, job: JobId) -> Path:
        """Returns the directory with what the workers of a job are told."""
        return self.data_dir / "guard" / job / "told"

    def peers(self, job: JobId) -> Path:
        return self.told(job) / "peers.json"

    def token(self, job: JobId) -> Path:
        return self.told(job) / "token"

    @property
    def lease(self) -> Path:
        return self.data_dir / "guard" / "lease.json"

    def guards(self, job: str = "*") -> Iterator[tuple[Key, Path]]:
        """Yields every worker that has files here, with its guardian's directory."""
        for path in sorted((self.data_dir / "guard").glob(f"{job}/*/")):
            if _is_number(path.name):
                yield (JobId(path.parent.name), int(path.name)), path


def write_peers(homes: Homes, job: JobId, hosts: Mapping[str, str]) -> None:
    """Writes the addresses of a job's workers, as far as the leader knows them, for the workers to
    read."""
    data = msgspec.json.encode({"job": job, "workers": dict(sorted(hosts.items()))})
    path = homes.peers(job)
    make_told(homes, job)
    if not path.exists() or path.read_bytes() != data:
        write_durably(path, data)
        path.chmod(TOLD_FILE_MODE)


def close_to_others(homes: Homes) -> None:
    """Closes the directories of workers to the other users of the host."""
    for name in ("guard", "workers"):
        folder = homes.data_dir / name
        folder.mkdir(exist_ok=True)
        folder.chmod(0o700)


def make_told(homes: Homes, job: JobId, token: str = "") -> None:
    """Makes the directory that the workers of a job read, and puts the job's token there. A
    directory above it is closed to all but the supervisor, so that others do not get here."""
    folder = homes.told(job)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(TOLD_MODE)
    if token and (not homes.token(job).exists() or homes.token(job).read_text() != token):
        write_durably(homes.token(job), token.encode())
        homes.token(job).chmod(TOLD_FILE_MODE)


def remove(homes: Homes, folder: Path) -> None:
    """Removes a directory, also one that was handed over to a user of jobs. What cannot be removed
    stays for the next time."""
    try:
        owner = folder.lstat().st_uid
        if owner == os.geteuid():
            empty(str(folder))
            folder.rmdir()
        else:
            homes.remover(str(folder), owner)
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("cannot remove what a worker left", path=str(folder), reason=str(error))


def clean_up(homes: Homes, key: Key) -> None:
    """Removes the files of a worker that has left this host. Its output stays for a while."""
    work, home = homes.work(key), homes.guard(key)
    remove(homes, work)
    remove(homes, homes.sign(key))
    _remove_if_empty(work.parent)
    for name in (SPEC, STATUS, LOCK, GUARDIAN_LOG, HEARTBEAT):
        (home / name).unlink(missing_ok=True)
    if home.is_dir():
        os.utime(home)


def drop_old_output(homes: Homes, places: Collection[Key], keep_secs: float) -> None:
    """Removes the output of workers that left this host more than `keep_secs` ago, and the empty
    directories of their jobs. What is dated far in the future, by a clock that was ahead, goes
    too."""
    for key, home in homes.guards():
        if key not in places and abs(time.time() - home.stat().st_mtime) > keep_secs:
            shutil.rmtree(home, ignore_errors=True)
    jobs = {key[0] for key in places}
    for folder in (homes.data_dir / "guard").glob("*/"):
        if folder.name not in jobs and not any(_is_number(path.name) for path in folder.iterdir()):
            shutil.rmtree(folder, ignore_errors=True)


def drop_orphans(homes: Homes, places: Collection[Key]) -> None:
    """Removes directories of workers without a place here, and half-written files, which remain
    after a crash."""
    for path in (homes.data_dir / "guard").glob("*/told/*.tmp"):
        path.unlink(missing_ok=True)
    for work in (homes.data_dir / "workers").glob("*/*/"):
        key = JobId(work.parent.name), int(work.name) if _is_number(work.name) else -1
        if key not in places and forbid_starts(homes.guard(key)):
            clean_up(homes, key)
            remove(homes, work)


def _is_number(name: str) -> bool:
    return re.fullmatch("[0-9]{1,9}", name) is not None


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return
