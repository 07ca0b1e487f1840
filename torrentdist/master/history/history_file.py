"""The file in which a master keeps what it knows of distributions.

Always: the file has the old content or the new one, whatever happens. A damaged file is reported
and begun anew: it is history, and nothing is decided by it.
"""

import asyncio
from pathlib import Path

import msgspec

from torrentdist.bundle.files.durability import write_durably
from torrentdist.log import get_logger
from torrentdist.master.history.distribution_runs import KeptHistory
from torrentdist.model.backoff import Retry
from torrentdist.model.wire.view import decode_json

log = get_logger()

NAME = "distributions.json"
FORMAT = 1
MOST_BYTES = 64 * 1024 * 1024
FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS = 1.0, 60.0


class _SavedHistory(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    kept: KeptHistory
    tells: bool = False
    """Whether the release that wrote this file writes an event for each end. No event is written
    later for an end that an older release saw."""


def encode_history(kept: KeptHistory) -> bytes:
    return msgspec.json.encode(_SavedHistory(format=FORMAT, kept=kept, tells=True))


def decode_history(data: bytes) -> KeptHistory:
    """Returns the history, or raises ValueError with the reason."""
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has {len(data)} bytes")
    saved = decode_json(data, _SavedHistory)
    if saved.format != FORMAT:
        raise ValueError(f"its format is {saved.format}")
    return saved.kept if saved.tells else msgspec.structs.replace(saved.kept, told=frozenset(saved.kept.past))


class HistoryFile:
    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME
        self._trouble = Retry(FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS)

    async def read(self) -> KeptHistory:
        try:
            return decode_history(await asyncio.to_thread(self._path.read_bytes))
        except FileNotFoundError:
            return KeptHistory()
        except (OSError, ValueError, msgspec.MsgspecError) as exc:
            log.warning("the history of distributions is refused and begun anew", path=str(self._path), reason=str(exc))
            return KeptHistory()

    async def write(self, kept: KeptHistory) -> bool:
        """Returns whether it is on disk now."""
        try:
            data = await asyncio.to_thread(encode_history, kept)
            await asyncio.to_thread(write_durably, self._path, data, 0o600)
        except OSError as exc:
            if self._trouble.failed(str(exc.errno)):
                log.warning("the history of distributions could not be saved", path=str(self._path), reason=str(exc))
            return False
        self._trouble.succeeded()
        return True
