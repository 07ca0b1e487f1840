"""Content over HTTP: files of published bundles, confined to them, and the heads of all answers
with content.

Always: conditions and ranges are decided in http_conditions.py; a body that cannot be finished ends
with an error. Never: follow anything out of the content directory, whatever the path or a symlink
says.
"""

import asyncio
import os
import stat
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.http_conditions import (
    FIELDS,
    Failed,
    NotModified,
    NotSatisfiable,
    Part,
    Representation,
    Whole,
    decide,
)
from torrentdist.host.http.web import StreamedAnswer, json_response
from torrentdist.model.errors import TorrentdistError, required
from torrentdist.model.ids import Digest
from torrentdist.model.wire.headers import DIGEST

FILE_TYPE = "application/octet-stream"
CHUNK = 1024 * 1024
"""Bytes per read. Each read costs a thread switch."""


@dataclass(frozen=True)
class Selection:
    """The part of some content that an answer carries, and the head of that answer."""

    start: int
    end: int
    """The position after the last byte. It means nothing if the size is unknown."""
    status: int
    headers: dict[str, str]


def select(request: Request, shown: Representation, digest: Digest) -> Selection | Response:
    """Returns the part to send, or the finished answer if a condition or range excludes all
    content."""
    headers = _head(shown, digest)
    fields = {name: request.headers.getlist(name) for name in FIELDS}
    match decide(request.method, fields, shown):
        case NotModified():
            return Response(status_code=304, headers=headers)
        case Failed(field):
            error = TorrentdistError("precondition_failed", field=field, tag=shown.tag)
            return json_response(error.to_wire(), status=error.http_status)
        case NotSatisfiable(text):
            error = TorrentdistError("range_not_satisfiable", range=text, size=shown.size)
            unmet = {"content-range": f"bytes */{shown.size}"}
            return json_response(error.to_wire(), status=error.http_status, headers=unmet)
        case Part(start, end):
            headers |= {"content-range": f"bytes {start}-{end - 1}/{shown.size}", "content-length": str(end - start)}
            return Selection(start, end, 206, headers)
        case Whole():
            headers |= {} if shown.size is None else {"content-length": str(shown.size)}
            return Selection(0, shown.size or 0, 200, headers)


def _head(shown: Representation, digest: Digest) -> dict[str, str]:
    now = time.time()
    head = {"etag": f'"{shown.tag}"', DIGEST.lower(): digest, "date": formatdate(now, usegmt=True)}
    if shown.modified is not None:
        head["last-modified"] = formatdate(min(shown.modified, now), usegmt=True)
    return head if shown.size is None else head | {"accept-ranges": "bytes"}


async def no_body() -> AsyncIterator[bytes]:
    """Returns the body of an answer to HEAD. A plain Response would set a content-length of 0."""
    nothing: tuple[bytes, ...] = ()
    for data in nothing:
        yield data


def confined_file(content: Path, relative: str) -> Path | None:
    """Returns the regular file that `relative` names inside `content`; None if there is none."""
    if not relative or relative.startswith("/") or "\0" in relative:
        return None
    try:
        root = content.resolve(strict=True)
        target = (root / relative).resolve(strict=True)
        inside = target.is_relative_to(root) and target != root
        return target if inside and stat.S_ISREG(os.lstat(target).st_mode) else None
    except (OSError, RuntimeError, ValueError):
        return None


def confined_path(content: Path, relative: str) -> str | None:
    """Returns confined_file's result relative to `content`."""
    target = confined_file(content, relative)
    return None if target is None else str(target.relative_to(content.resolve()))


def file_response(request: Request, content: Path, relative: str, digest: Digest, published_at: float) -> Response:
    """Answers with one file of a published bundle. Its Last-Modified is when this host published
    the bundle. Blocks."""
    path = required(confined_file(content, relative), "not_found", what=f"{relative!r} in this bundle")
    shown = Representation(digest, os.stat(path).st_size, int(published_at))
    return path_response(request, path, shown, digest, FILE_TYPE)


def path_response(request: Request, path: Path, shown: Representation, digest: Digest, media_type: str) -> Response:
    chosen = select(request, shown, digest)
    if isinstance(chosen, Response):
        return chosen
    body = no_body() if request.method == "HEAD" else read_part(path, chosen.start, chosen.end)
    return StreamedAnswer(body, status_code=chosen.status, headers=chosen.headers, media_type=media_type)


async def read_part(path: Path, start: int, end: int) -> AsyncIterator[bytes]:
    """Yields the bytes from `start` to `end`. Raises an error if the file ends before `end`, or is
    written to meanwhile."""
    try:
        with await asyncio.to_thread(open, path, "rb") as stream:
            opened = os.fstat(stream.fileno())
            while start < end:
                data = await asyncio.to_thread(os.pread, stream.fileno(), min(CHUNK, end - start), start)
                if not data:
                    raise TorrentdistError("corrupt", path=str(path), detail=f"it ends at {start}")
                if os.fstat(stream.fileno()).st_mtime_ns != opened.st_mtime_ns:
                    raise TorrentdistError("corrupt", path=str(path), detail="it was written to while it was read")
                yield data
                start += len(data)
    except OSError as exc:
        raise TorrentdistError("disk_error", path=str(path), detail=exc.strerror or str(exc)) from exc
