"""One file of published content as an HTTP answer, with ranges; confined to its bundle.

Must not do: follow anything out of the content directory, whatever the path or a symlink says.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from starlette.responses import FileResponse, Response

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest


class LargeFile(FileResponse):
    """In steps that are worth the change of threads that each of them costs."""

    chunk_size = 1024 * 1024


def confined_file(content: Path, relative: str) -> Path | None:
    """The regular file that `relative` names inside `content`; None if there is none."""
    if not relative or relative.startswith("/") or "\0" in relative:
        return None
    try:
        root = content.resolve(strict=True)
        target = (root / relative).resolve(strict=True)
        inside = target.is_relative_to(root) and target != root
        return target if inside and stat.S_ISREG(os.lstat(target).st_mode) else None
    except (OSError, RuntimeError, ValueError):
        return None


def file_response(content: Path, relative: str, digest: Digest) -> Response:
    path = confined_file(content, relative)
    if path is None:
        raise TorrentdistError("not_found", what=f"{relative!r} in this bundle")
    return LargeFile(
        path,
        media_type="application/octet-stream",
        headers={"X-Digest": digest, "ETag": f'"{digest}"'},
        stat_result=os.stat(path),
    )
