"""Writes the daemon's address to a file in its data directory, for the program that started it and
for people.

Always: the file is written once the daemon answers, and removed when it stops cleanly. It contains
the pid, so that a leftover file after a crash can be recognized.
"""

import asyncio
import os
from pathlib import Path

import msgspec

from torrentdist.bundle.files.durability import disk_failures, write_durably
from torrentdist.log import get_logger
from torrentdist.model.backoff import Retry
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.view import decode_json
from torrentdist.model.wording import os_sentence

log = get_logger()

NAME = "daemon.json"
FIRST_PAUSE_SECS = 1.0
LONGEST_PAUSE_SECS = 30.0


class DaemonAddress(msgspec.Struct, frozen=True, kw_only=True):
    role: str
    id: str
    url: str
    """The API of a master, or the gateway of a supervisor."""
    swarm_port: int
    pid: int = msgspec.field(default_factory=os.getpid)


def announce_address(data_dir: Path, address: DaemonAddress) -> None:
    with disk_failures(data_dir):
        write_durably(data_dir / NAME, msgspec.json.encode(address))


async def announced(data_dir: Path, address: DaemonAddress) -> None:
    """Returns once the file is written. Waits for room if the disk is full, because a full disk
    must not prevent a daemon from serving what is on it."""
    again = Retry(FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS)
    while True:
        try:
            return await asyncio.to_thread(announce_address, data_dir, address)
        except TorrentdistError as error:
            if again.failed(error.code):
                log.warning("cannot write this daemon's address yet", reason=error.message)
            await asyncio.sleep(again.pause_secs)


def withdraw_address(data_dir: Path) -> None:
    (data_dir / NAME).unlink(missing_ok=True)


def read_address(data_dir: Path) -> DaemonAddress | None:
    try:
        return decode_json((data_dir / NAME).read_bytes(), DaemonAddress)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as exc:
        raise TorrentdistError("disk_error", path=str(data_dir / NAME), detail=os_sentence(exc)) from exc
