"""The HTTP shell's own behaviour, without a server."""

from __future__ import annotations

import pytest
from starlette.requests import Request
from starlette.types import Message

from torrentdist.host.web import read_body
from torrentdist.model.errors import TorrentdistError

pytestmark = pytest.mark.anyio


async def test_a_client_that_goes_away_is_no_failure_of_ours() -> None:
    """Broken, every killed client would leave a traceback in the daemons' logs, and real ones would drown in them."""
    messages: list[Message] = [
        {"type": "http.request", "body": b"half", "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        return messages.pop(0)

    request = Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)
    with pytest.raises(TorrentdistError) as caught:
        await read_body(request, 100)

    assert caught.value.code == "interrupted"
