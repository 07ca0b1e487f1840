"""Gives pieces of a bundle to hosts of other zones, also while it arrives here.

Always: only pieces that the engine has verified are given. An answer comes as soon as there is one
of the wanted pieces, and has at most MOST_BYTES, or one piece.
Never: read files. The engine does, as for its own peers.
"""

import asyncio
import time
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.declared_routes import DeclaredRoutes, operation
from torrentdist.host.http.web import number_parameter
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.security.authorization import Role
from torrentdist.supervisor.border.piece_frames import lacking_pieces, packed
from torrentdist.supervisor.border.shared_limit import SharedLimit
from torrentdist.swarm.engine.engine import Engine
from torrentdist.swarm.engine.transfer import Transfer
from torrentdist.swarm.plan.border import FLOWS

MOST_BYTES = 1024 * 1024
LONGEST_WAIT_SECS = 10.0
LOOK_SECS = 0.1
"""Interval between two looks for pieces that have arrived."""


class PieceApi(DeclaredRoutes):
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._limit = SharedLimit(lambda: engine.rate_limits[0], lambda rate: engine.set_rate(upload=rate))

    @operation("GET", "/v1/pieces/{digest}", None, Role.HOST)
    async def pieces(self, request: Request) -> Response:
        """Some of the wanted pieces of a flow, as soon as this host has one; nothing if none
        comes."""
        digest = ids.digest(request.path_params["digest"])
        flow = int(number_parameter(request, "flow", 0, low=0, high=FLOWS - 1))
        ends = time.monotonic() + number_parameter(request, "wait", 0.0, low=0.0, high=LONGEST_WAIT_SECS)
        lacks = request.query_params.get("lacks", "")
        while True:
            transfer = self._engine.transfer(digest)
            is_allowed = await self._limit.allowed(max(0.0, ends - time.monotonic()))
            if transfer is not None and is_allowed and (body := await _some(transfer, flow, lacks)):
                self._limit.moved(len(body))
                return Response(body, media_type="application/octet-stream")
            if time.monotonic() >= ends:
                break
            await asyncio.sleep(LOOK_SECS)
        if transfer is None:
            raise TorrentdistError("not_found", what=f"a bundle with digest {Digest(digest)} on this host")
        return Response(b"", media_type="application/octet-stream")


async def _some(transfer: Transfer, flow: int, lacks: str) -> bytes:
    meta = transfer.meta
    wanted = lacking_pieces(flow, lacks, meta.num_pieces)
    there: Sequence[int] = [piece for piece in wanted if transfer.run_from(piece, 1)]
    chosen = there[: max(1, MOST_BYTES // meta.piece_length)]
    read = [(piece, await transfer.whole.read(piece, transfer.handle)) for piece in chosen]
    return packed((piece, content) for piece, content in read if content)
