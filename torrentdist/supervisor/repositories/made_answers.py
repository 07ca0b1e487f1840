"""Answers of the gateway that are made from a bundle: pages, metadata, checksums.

Always: the entity tag is the hash of the answer, so a client that has it gets 304.
"""

import hashlib

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.file_answers import select
from torrentdist.host.http.http_conditions import Representation
from torrentdist.model.ids import Digest


def made_answer(request: Request, data: bytes, media_type: str, digest: Digest) -> Response:
    shown = Representation(hashlib.sha256(data).hexdigest(), len(data))
    chosen = select(request, shown, digest)
    if isinstance(chosen, Response):
        return chosen
    headers = {**chosen.headers, "vary": "accept", "cache-control": "no-cache"}
    return Response(data[chosen.start : chosen.end], status_code=chosen.status, headers=headers, media_type=media_type)
