"""Files with keys, which nobody but their owner may read, and the certificates beside them.

Always: a file has its mode from its first byte on, and is whole after a crash. A key that others
can read is refused.
"""

import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wording import cause_text

_MOST_KEY_BYTES: Final = 64 * 1024


def read_private(path: Path, most: int = _MOST_KEY_BYTES) -> bytes:
    """Reads a file that only its owner can read, of at most `most` bytes. Raises OSError or
    `secret_invalid`."""
    with path.open("rb") as stream:
        mode = os.fstat(stream.fileno()).st_mode
        data = stream.read(most + 1)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        detail = f"others can get at it (mode {stat.S_IMODE(mode):04o})"
        raise TorrentdistError("secret_invalid", path=str(path), detail=detail)
    if len(data) > most:
        raise TorrentdistError("secret_invalid", path=str(path), detail=f"it is longer than {most} bytes")
    return data


def write_private(path: Path, data: bytes) -> None:
    """Writes a key. Never replaces one: somebody else may have made it in this very moment."""
    _write(path, data, 0o600, os.link)


def replace_private(path: Path, data: bytes) -> None:
    """Writes or replaces a file that only its owner may read."""
    _write(path, data, 0o600, os.rename)


def write_public(path: Path, data: bytes) -> None:
    """Writes or replaces a certificate, which everybody may read."""
    _write(path, data, 0o644, os.rename)


def _write(path: Path, data: bytes, mode: int, put: Callable[[Path, Path], None]) -> None:
    temporary = path.parent / f".{path.name}.{secrets.token_hex(6)}.tmp"
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(fd, "wb") as out:
                os.fchmod(out.fileno(), mode)
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            put(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_names(path.parent)
    except OSError as exc:
        raise TorrentdistError("disk_error", path=str(path), detail=cause_text(exc)) from exc


def _sync_names(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
