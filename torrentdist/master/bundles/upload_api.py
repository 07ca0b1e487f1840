"""Uploads: open one with its metafile, send its bytes over HTTP, finish it.

Always: a standby refuses before it reads a body.
"""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.bundle.metafile import parse_metafile
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import body_of, heavy_turn
from torrentdist.host.http.web import flag_parameter, json_response, number_parameter
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.master.bundles.bundle_operations import Uploader
from torrentdist.master.bundles.intake import Intake
from torrentdist.master.http.routes import (
    RequestedChange,
    Routes,
    bundle_of,
    bundle_target,
    change,
    digest_of,
    operation,
)
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.replication.possession import Proofs
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.wire.bundle_messages import BundleView, UploadOffset
from torrentdist.security.authorization import Role, may_read
from torrentdist.traces.spans import TRACEPARENT


class UploadApi(Routes, msgspec.Struct, frozen=True):
    """`max_body` is the largest metafile, and the largest portion of an upload, in bytes."""

    leadership: Leadership
    intake: Intake
    proofs: Proofs
    max_body: int

    async def _uploaded(self, request: Request) -> list[BundleId]:
        """The ids that its sender may read: a refusal names them."""
        self.leadership.fence()
        sender = principal_of(request)
        return [bundle for bundle in self.intake.bundles_of(digest_of(request)) if may_read(sender, bundle)]

    @change(
        "POST",
        "/v1/bundles/{id}",
        BundleView,
        Role.UPLOADER,
        max_body="max_body",
        target=bundle_target,
        dry_runs=False,
    )
    async def open_upload(self, asked: RequestedChange) -> bytes:
        """Open an upload; the body is the metafile."""
        request, bundle = asked.request, bundle_of(asked.request)
        wanted = int(number_parameter(request, "min_replicas", 0, low=0, high=1000))
        recipe = request.query_params.get("recipe", "")[:64]
        async with heavy_turn(request):
            meta = await in_heavy_thread(parse_metafile, asked.raw)
        proven = self.proofs.is_given(asked.by, meta.digest)
        uploader = Uploader(asked.by, principal_of(request).reads, proven, flag_parameter(request, "again"))
        sender = request.headers.get(TRACEPARENT, "")
        try:
            return await self.intake.open(asked.mutation, bundle, meta, wanted or None, recipe, uploader, sender)
        except TorrentdistError as error:
            if error.code == "proof_needed":
                self.proofs.begin(asked.by, meta)
            raise

    @operation("PUT", "/v1/bundles/{id}/proof", UploadOffset, Role.UPLOADER, max_body="max_body", target=bundle_target)
    async def prove(self, request: Request) -> Response:
        """Show the content of an upload that was answered with `proof_needed`."""
        offset = int(number_parameter(request, "offset", 0, low=0, high=2**62))
        digest = ids.digest(request.query_params.get("digest", ""))
        self.leadership.fence()
        data = await body_of(request)
        return json_response(UploadOffset(await self.proofs.add(principal_of(request).name, digest, offset, data)))

    @operation("PUT", "/v1/uploads/{digest}", UploadOffset, Role.UPLOADER, max_body="max_body", target="_uploaded")
    async def upload_bytes(self, request: Request) -> Response:
        """Append bytes at an offset."""
        digest = digest_of(request)
        offset = int(number_parameter(request, "offset", 0, low=0, high=2**62))
        self.leadership.fence()
        data = await body_of(request)
        span = await self.intake.append(digest, offset, data, principal_of(request))
        return json_response(UploadOffset(span.start, span.end))

    @operation("GET", "/v1/uploads/{digest}", UploadOffset, Role.UPLOADER, target="_uploaded")
    async def upload_offset(self, request: Request) -> Response:
        """Where to go on."""
        self.leadership.fence()
        span = await self.intake.next_span(digest_of(request), principal_of(request))
        return json_response(UploadOffset(span.start, span.end))

    @change("POST", "/v1/uploads/{digest}/finish", BundleView, Role.UPLOADER, target="_uploaded", dry_runs=False)
    async def upload_finish(self, asked: RequestedChange) -> bytes:
        """Verify and publish."""
        return await self.intake.finish(asked.mutation, digest_of(asked.request), principal_of(asked.request))
