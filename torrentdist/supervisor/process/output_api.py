"""The output of this host's workers over HTTP: on the gateway, and for other hosts on api.listen.

Never: read anything but the files that guardians keep of their workers' output.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.declared_routes import DeclaredRoutes, operation
from torrentdist.host.http.web import json_response, number_parameter, poll_secs
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.headers import NEXT_OFFSET, OFFSET
from torrentdist.model.wire.job_messages import WorkerOutput
from torrentdist.security.authorization import Role
from torrentdist.supervisor.process.output_files import Stream, read_output, span_of
from torrentdist.supervisor.process.worker_homes import Homes
from torrentdist.supervisor.worker.worker_types import Key

FOLLOW_LOOK_SECS = 0.1
"""Seconds between two looks at the file while a client follows it."""


class OutputApi(DeclaredRoutes):
    """`here` returns the workers that are assigned to this host now."""

    def __init__(self, homes: Homes, here: Callable[[], frozenset[Key]]) -> None:
        self._homes = homes
        self._here = here

    @operation("GET", "/v1/host/jobs/{job}/logs", list[WorkerOutput], Role.JOB)
    async def listing(self, request: Request) -> Response:
        """What this host keeps of what the job's workers wrote."""
        job, here = ids.job_id(request.path_params["job"]), self._here()

        def look() -> list[WorkerOutput]:
            return [
                WorkerOutput(worker=key[1], stream=stream, begin=span.begin, end=span.end, at=span.at, here=key in here)
                for key, home in self._homes.guards(job)
                for stream in Stream
                if (span := span_of(home, stream)) is not None
            ]

        return json_response(await asyncio.to_thread(look))

    @operation("GET", "/v1/host/jobs/{job}/{worker:int}/log", None, Role.JOB)
    async def output(self, request: Request) -> Response:
        """Bytes that one worker wrote to stdout or stderr.

        It begins at `offset`; a negative offset counts from the end.

        With `follow` the answer waits for more output, if there is none yet.
        """
        home = self._home(request)
        stream = _stream(request)
        offset = int(number_parameter(request, "offset", 0, low=-1e15, high=1e15))
        deadline = time.monotonic() + poll_secs(request, "follow")
        piece = await asyncio.to_thread(read_output, home, stream, offset)
        while not piece.data and time.monotonic() < deadline:
            await asyncio.sleep(FOLLOW_LOOK_SECS)
            piece = await asyncio.to_thread(read_output, home, stream, piece.end)
        headers = {OFFSET: str(piece.start), NEXT_OFFSET: str(piece.end)}
        return Response(piece.data, media_type="application/octet-stream", headers=headers)

    def _home(self, request: Request) -> Path:
        job, worker = ids.job_id(request.path_params["job"]), request.path_params["worker"]
        home = self._homes.guard((job, worker))
        if not home.is_dir():
            raise TorrentdistError("not_found", what=f"output of worker {worker} of {job} on this host")
        return home


def _stream(request: Request) -> Stream:
    text = request.query_params.get("stream", Stream.STDOUT)
    try:
        return Stream(text)
    except ValueError:
        raise TorrentdistError("invalid_request", detail=f"stream={text!r} is neither stdout nor stderr") from None
