"""Uploads: open one with its metafile, send its bytes over HTTP, finish it.

Always: a standby refuses before it reads a body.
"""

from __future__ import annotations

from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from torrentdist.bundle.metafile import parse_metafile
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Operation, body_of
from torrentdist.host.http.web import json_response, number_parameter
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.master.bundles.intake import Intake
from torrentdist.master.http.mutation_requests import answered, bundle_of, bundle_target, digest_of, mutation_of
from torrentdist.master.leading.leadership import Leadership
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.bundle_messages import BundleView, UploadOffset
from torrentdist.security.authorization import may_read
from torrentdist.security.principal import Role
from torrentdist.traces.spans import TRACEPARENT


class UploadApi:
    """`max_body` is the largest metafile, and the largest portion of an upload, in bytes."""

    def __init__(self, leadership: Leadership, intake: Intake, max_body: int) -> None:
        self._leadership = leadership
        self._intake = intake
        self._max_body = max_body

    def operations(self) -> Iterator[Operation]:
        yield Operation(
            "POST",
            "/v1/bundles/{id}",
            self.open_upload,
            BundleView,
            "open an upload; the body is the metafile",
            Role.UPLOADER,
            max_body=self._max_body,
            changes=True,
            target=bundle_target,
        )
        yield Operation(
            "PUT",
            "/v1/uploads/{digest}",
            self.upload_bytes,
            UploadOffset,
            "append bytes at an offset",
            Role.UPLOADER,
            max_body=self._max_body,
            target=self._uploaded,
        )
        # This begins to take bytes: it ends a fetch, and may empty what has arrived.
        yield Operation(
            "GET",
            "/v1/uploads/{digest}",
            self.upload_offset,
            UploadOffset,
            "where to go on",
            Role.UPLOADER,
            target=self._uploaded,
        )
        yield Operation(
            "POST",
            "/v1/uploads/{digest}/finish",
            self.upload_finish,
            BundleView,
            "verify and publish",
            Role.UPLOADER,
            changes=True,
            target=self._uploaded,
        )

    async def _uploaded(self, request: Request) -> list[BundleId]:
        """The ids that its sender may read: a refusal names them."""
        self._leadership.fence()
        sender = principal_of(request)
        return [bundle for bundle in self._intake.bundles_of(digest_of(request)) if may_read(sender, bundle)]

    async def open_upload(self, request: Request) -> Response:
        bundle = bundle_of(request)
        wanted = int(number_parameter(request, "min_replicas", 0, low=0, high=1000))
        recipe = request.query_params.get("recipe", "")[:64]
        self._leadership.fence()
        body = await body_of(request)
        meta = await in_heavy_thread(parse_metafile, body)
        mutation, owner = await mutation_of(request, body), principal_of(request).name
        sender = request.headers.get(TRACEPARENT, "")
        answer = await self._intake.open(mutation, bundle, meta, wanted or None, recipe, owner, sender)
        return answered(answer)

    async def upload_bytes(self, request: Request) -> Response:
        digest = digest_of(request)
        offset = int(number_parameter(request, "offset", 0, low=0, high=2**62))
        self._leadership.fence()
        data = await body_of(request)
        span = await self._intake.append(digest, offset, data)
        return json_response(UploadOffset(span.start, span.end))

    async def upload_offset(self, request: Request) -> Response:
        self._leadership.fence()
        span = await self._intake.next_span(digest_of(request))
        return json_response(UploadOffset(span.start, span.end))

    async def upload_finish(self, request: Request) -> Response:
        self._leadership.fence()
        digest = digest_of(request)
        return answered(await self._intake.finish(await mutation_of(request), digest))
