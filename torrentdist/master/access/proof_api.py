"""This master's proof that it knows a client's token. The client asks before it sends the token.

Always: it proves for its own URL only. Each unknown name gets an answer of its own that proves
nothing, the same one after a restart, so that nobody can find out names.
"""

import hashlib
import hmac
import secrets
import time

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.http.http_errors import InvalidUrl
from torrentdist.http.request_head import origin_of
from torrentdist.http.token_recipients import PATH, url_of
from torrentdist.master.http.routes import Routes, operation
from torrentdist.master.reads.saved_records import Records
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.master_proof import name_and_key, proof
from torrentdist.security.principal import Role

NONCE_LENGTHS = range(16, 129)


class ProofApi(Routes):
    """`url` is the one under which others know this master. `token` is the shared one."""

    def __init__(self, records: Records, url: str, token: str | None) -> None:
        self._records = records
        self._url = _normal(url)
        self._shared = None if token is None else name_and_key(token)
        self._nobody = secrets.token_hex(32)

    @operation("GET", PATH, None, Role.ANYONE)
    async def proof(self, request: Request) -> Response:
        """A proof that this master knows the client's token."""
        nonce, url = request.query_params.get("nonce", ""), request.query_params.get("url", "")
        if len(nonce) not in NONCE_LENGTHS or url != self._url:
            raise TorrentdistError("invalid_request", detail="a proof is for a nonce, and for this master's own URL")
        return Response(proof(self._key(request.query_params.get("name", "")), nonce, url), media_type="text/plain")

    def _key(self, name: str) -> str:
        if not name and self._shared is not None:
            return self._shared[1]
        snapshot = self._records.snapshot()
        entry = snapshot.tokens.get(name)
        now = self._records.server_now() or time.time()
        if entry is not None and entry.record.is_usable(now):
            return entry.record.hash
        secret = self._nobody if snapshot.cluster is None else self._records.secrets.text()
        return hmac.new(secret.encode(), b"torrentdist nobody\0" + name.encode(), hashlib.sha256).hexdigest()


def _normal(url: str) -> str:
    try:
        return url_of(origin_of(url))
    except InvalidUrl:
        return ""
