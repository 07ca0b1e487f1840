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
from contextlib import asynccontextmanager, suppress
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from torrentdist.host.http.file_sending import SEND_FILE, SendFile
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
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.model.wire.headers import DIGEST

FILE_TYPE = "application/octet-stream"
CHUNK = 1024 * 1024
"""Bytes per read. Each read costs a thread switch."""
SENT_BYTES = 256 * 1024
"""Bytes of the shortest part that the kernel sends. A shorter one costs less to read."""
_NOTHING_YET: Final[Message] = {"type": "http.response.body", "body": b"", "more_body": True}
HELD_BACK = 4096
"""Bytes at the end of a part that are sent once nobody has written to the others."""


class Selection(msgspec.Struct, frozen=True):
    """The part of some content that an answer carries, and the head of that answer."""

    start: int
    end: int
    """The position after the last byte. It means nothing if the size is unknown."""
    status: int
    headers: dict[str, str]

    @property
    def is_long(self) -> bool:
        return self.end - self.start >= SENT_BYTES


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


def file_response(
    request: Request, content: Path, relative: str, digest: Digest, published_at: float
) -> Response | None:
    """Answers with one file of a published bundle. Its Last-Modified is when this host published
    the bundle. Returns None if the file is gone: the bundle was dropped meanwhile. Blocks."""
    path = confined_file(content, relative)
    with suppress(FileNotFoundError):
        if path is not None:
            shown = Representation(digest, os.stat(path).st_size, int(published_at))
            return path_response(request, path, shown, digest, FILE_TYPE)
    return None


def path_response(request: Request, path: Path, shown: Representation, digest: Digest, media_type: str) -> Response:
    chosen = select(request, shown, digest)
    if isinstance(chosen, Response):
        return chosen
    return part_response(request, path, chosen, media_type)


def part_response(request: Request, path: Path, chosen: Selection, media_type: str) -> Response:
    """Answers with the chosen part of a file."""
    more: dict[str, Any] = {"status_code": chosen.status, "headers": chosen.headers, "media_type": media_type}
    return StreamedAnswer(no_body(), **more) if request.method == "HEAD" else FileAnswer(path, chosen, **more)


class FileAnswer(StreamedAnswer):
    """An answer with a part of a file. A long one is sent by the kernel, where the connection can
    do that.

    A file that is written to meanwhile is noticed before the last bytes are sent, and the answer is
    cut off.
    """

    def __init__(self, path: Path, chosen: Selection, **more: Any) -> None:
        super().__init__(read_part(path, chosen.start, chosen.end), **more)
        self._path, self._chosen = path, chosen
        self._send_file: SendFile | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._chosen.is_long:
            self._send_file = scope.get("state", {}).get(SEND_FILE)
        await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        if self._send_file is None:
            await super().stream_response(send)
            return
        start, last = self._chosen.start, self._chosen.end - HELD_BACK
        async with _opened(self._path) as stream:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            # Empty parts go the way of all others, where the sender is looked at again.
            await self._send_file(stream.fileno(), start, last, partial(send, _NOTHING_YET))
            data = await stream.read(last, HELD_BACK)
            await send({"type": "http.response.body", "body": data, "more_body": False})


async def read_part(path: Path, start: int, end: int) -> AsyncIterator[bytes]:
    """Yields the bytes from `start` to `end`. Raises an error if the file ends before `end`, or is
    written to meanwhile."""
    async with _opened(path) as stream:
        while start < end:
            yield (data := await stream.read(start, min(CHUNK, end - start)))
            start += len(data)


class _OpenFile:
    """A file that nobody may write to while it is read."""

    def __init__(self, stream: BinaryIO, path: Path) -> None:
        self.fileno = stream.fileno
        self._path = path
        self._written_at = os.fstat(stream.fileno()).st_mtime_ns

    async def read(self, start: int, count: int) -> bytes:
        """Returns bytes that are as they were when the file was opened. Raises `corrupt` if there
        are none."""
        data = await asyncio.to_thread(os.pread, self.fileno(), count, start)
        if not data:
            raise TorrentdistError("corrupt", path=str(self._path), detail=f"it ends at {start}")
        if os.fstat(self.fileno()).st_mtime_ns != self._written_at:
            raise TorrentdistError("corrupt", path=str(self._path), detail="it was written to while it was read")
        return data


@asynccontextmanager
async def _opened(path: Path) -> AsyncIterator[_OpenFile]:
    try:
        with await asyncio.to_thread(open, path, "rb") as stream:
            yield _OpenFile(stream, path)
    except OSError as exc:
        raise TorrentdistError("disk_error", path=str(path), detail=exc.strerror or str(exc)) from exc
