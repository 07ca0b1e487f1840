"""One connection to a server: it sends a request, reads the answer, and can then be used for the
next one.

Always: reading and writing end after a time of silence. An answer is refused as soon as it is
larger than its reader accepts.
Never: use the connection again unless request and answer are complete.
"""

import asyncio
import ssl
import time
from typing import Final

from torrentdist.http.answer_parsing import AnswerHead, chunk_size, expect_room, length_in, read_head, unpacked
from torrentdist.http.http_values import EXPECTS, WRITE_BYTES, Answer, AnswerTimeout, Headers, HttpError, SentRequest
from torrentdist.http.tls_failures import ENDED_LIKE_HTTPS, tls_sentence
from torrentdist.model.wording import os_sentence

IDLE_SECS: Final = 60.0
"""Longest time that an unused connection is kept. Our servers keep it longer."""
READ_BYTES: Final = 256 * 1024
"""Number of bytes read at once. No head of an answer is larger."""
ASKED_SECS: Final = 1.0
"""Time for the server to ask for a body. Afterwards the body is sent unasked: it may not know how.
"""
MOST_HEADS: Final = 16
"""Provisional answers (status 1xx) that a server may send before the real one, and lines after the
last chunk.
"""


class Connection:
    """An open connection. Only one request may use it at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.used_at = 0.0
        """Monotonic time when the last answer was complete."""
        self.is_over = False
        """Whether request and answer are complete, so that the next request may come."""
        self._reader = reader
        self._early: AnswerHead | None = None
        """The head of an answer that came instead of the wish for the body."""

    def is_usable(self) -> bool:
        fresh = time.monotonic() - self.used_at < IDLE_SECS
        # Bytes that came after the last answer belong to no request of ours.
        rest = self._reader._buffer  # type: ignore[attr-defined]
        return fresh and not rest and not self._reader.at_eof() and not self.writer.is_closing()

    async def send(self, head: bytes, content: bytes, secs: float) -> None:
        """Sends the request. A server that refuses it early may have said why, so a broken
        connection is no error.
        """
        self.is_over = False
        asks_first = EXPECTS in head
        try:
            self.writer.write(head if asks_first else head + content)
            await self._drain(secs)
            if not asks_first or (await self._is_refused(min(secs, ASKED_SECS))):
                self.is_over = not asks_first
                return
            for start in range(0, len(content), WRITE_BYTES):
                self.writer.write(memoryview(content)[start : start + WRITE_BYTES])
                await self._drain(secs)
        except OSError:
            return
        self.is_over = True

    async def _is_refused(self, secs: float) -> bool:
        """Waits until the server asks for the body, answers without it, or has let `secs` pass."""
        try:
            head = read_head(await self._until(b"\r\n\r\n", secs))
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return False  # a broken connection shows when it is used
        self._early = head if head.status >= 200 else None
        return self._early is not None

    async def _drain(self, secs: float) -> None:
        try:
            async with asyncio.timeout(secs):
                await self.writer.drain()
        except TimeoutError as exc:
            raise AnswerTimeout("nothing was taken in time") from exc

    async def answer(self, asked: SentRequest, secs: float) -> Answer:
        """Reads the answer to the request that was just sent."""
        try:
            head, self._early = self._early or await self._head(secs), None
            self.is_over = self.is_over and head.lasting
            no_body = asked.method == "HEAD" or head.status in (204, 304)
            content = b"" if no_body else await self._body(head.headers, asked.most_bytes, secs)
        except TimeoutError as exc:
            raise AnswerTimeout("nothing came in time") from exc
        except asyncio.IncompleteReadError as exc:
            raise HttpError("the answer was cut off" if exc.partial else self._ended()) from exc
        except asyncio.LimitOverrunError as exc:
            raise HttpError("this is no HTTP: its head has no end") from exc
        except ssl.SSLError as exc:
            host = str(self.writer.get_extra_info("peername", ("the server",))[0])
            raise HttpError(tls_sentence(exc, host)) from exc
        except OSError as exc:
            raise HttpError(os_sentence(exc) or "the connection broke") from exc
        most = asked.most_bytes
        if len(content) > READ_BYTES:
            whole = await asyncio.to_thread(unpacked, content, head.headers, most)
        else:
            whole = unpacked(content, head.headers, most)
        return Answer(head.status, head.headers, whole, asked.url, self.writer)

    def _ended(self) -> str:
        is_first = self.used_at == 0.0 and self.writer.get_extra_info("ssl_object") is None
        return f"the connection ended without an answer{ENDED_LIKE_HTTPS if is_first else ''}"

    async def _head(self, secs: float) -> AnswerHead:
        for _ in range(MOST_HEADS):
            head = read_head(await self._until(b"\r\n\r\n", secs))
            if head.status >= 200:
                return head
        raise HttpError("provisional answers without an end")

    async def _body(self, headers: Headers, most: int, secs: float) -> bytes:
        if coding := headers.get("transfer-encoding"):
            if coding.lower() != "chunked":
                raise HttpError(f"unknown transfer encoding {coding}")
            return await self._chunks(most, secs)
        length = length_in(headers)
        body = bytearray()
        if length is not None:
            expect_room(length, most)
            await self._read_into(body, length, secs)
            return bytes(body)
        self.is_over = False
        while part := await self._some(READ_BYTES, secs):
            expect_room(len(body) + len(part), most)
            body += part
        return bytes(body)

    async def _chunks(self, most: int, secs: float) -> bytes:
        body = bytearray()
        while size := chunk_size(await self._until(b"\r\n", secs)):
            expect_room(len(body) + size, most)
            await self._read_into(body, size, secs)
            if await self._until(b"\r\n", secs) != b"\r\n":
                raise HttpError("a chunk that does not end")
        for _ in range(MOST_HEADS):  # headers after the body tell us nothing
            if await self._until(b"\r\n", secs) == b"\r\n":
                return bytes(body)
        raise HttpError("headers without an end")

    async def _read_into(self, body: bytearray, size: int, secs: float) -> None:
        end = len(body) + size
        while len(body) < end:
            part = await self._some(min(end - len(body), READ_BYTES), secs)
            if not part:
                raise HttpError("the answer was cut off")
            body += part

    async def _some(self, most: int, secs: float) -> bytes:
        async with asyncio.timeout(secs):
            return await self._reader.read(most)

    async def _until(self, end: bytes, secs: float) -> bytes:
        async with asyncio.timeout(secs):
            return await self._reader.readuntil(end)
