"""Tells masters the state of this host: the room of its store, its rates, and the bundles that do
not arrive.

Always: values come from memory, so that an answer never waits for the disk.
"""

from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Operation
from torrentdist.host.http.web import json_response
from torrentdist.host.runtime import HostRuntime
from torrentdist.model.wire.cluster_messages import HostStateView
from torrentdist.security.authorization import may_read
from torrentdist.security.principal import Role

MOST_PROBLEMS = 20


class HostStateApi:
    def __init__(self, runtime: HostRuntime) -> None:
        self._runtime = runtime

    def operations(self) -> Iterator[Operation]:
        summary = "the room of this host's store, its rates, and what does not arrive"
        yield Operation("GET", "/v1/host/state", self.state, HostStateView, summary, Role.READER)

    async def state(self, request: Request) -> Response:
        sender = principal_of(request)
        store, engine = self._runtime.store, self._runtime.engine.statistics()
        usage, failures = store.usage(), self._runtime.fetches.failures()
        named = (
            (sorted(name for name in store.names(digest) if may_read(sender, name)), error)
            for digest, (_, error) in failures.items()
        )
        view = HostStateView(
            published_bytes=usage.published_bytes,
            arriving_bytes=usage.arriving_bytes,
            free_bytes=usage.free_bytes,
            limit_bytes=usage.limit_bytes,
            reserve_bytes=usage.reserve_bytes,
            upload_rate=engine.upload_rate,
            download_rate=engine.download_rate,
            peers=engine.peers,
            errors={names[0]: error.message for names, error in sorted(named, key=str)[:MOST_PROBLEMS] if names},
        )
        return json_response(view)
