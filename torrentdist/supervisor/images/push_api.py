"""What a client pushes to the gateway as a container registry: blobs, manifests, and deletions.

Always: a push needs a token whose holder may upload, and the manifest of a tag is answered when
enough masters hold the image. A tag that stands for another image stays as it is.
Never: publish a blob or a manifest that is not what its digest says.
"""

from typing import Final

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.bundle.images.blob_upload import chunk_of
from torrentdist.bundle.images.image_content import checked_manifest
from torrentdist.bundle.images.image_layout import MOST_BYTES, digest_of
from torrentdist.bundle.images.image_names import Image, is_digest, is_referrer_tag, is_tag, referrer_tag
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.declared_routes import DeclaredRoutes, operation
from torrentdist.host.http.operation import Operation, body_of
from torrentdist.host.http.web import announced_size
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authorization import Role
from torrentdist.supervisor.images.blob_uploads import BlobUpload
from torrentdist.supervisor.images.pushes import Pushes
from torrentdist.supervisor.images.registry_api import check_digest, name_of
from torrentdist.supervisor.images.registry_errors import V2_PATH, VERSION, RegistryError, told_as

_UPLOADS: Final = V2_PATH + "/{name:any_path}/blobs/uploads"
_UPLOAD: Final = _UPLOADS + "/{upload}"
_MANIFEST: Final = V2_PATH + "/{name:any_path}/manifests/{reference}"
_BLOB: Final = V2_PATH + "/{name:any_path}/blobs/{digest}"
_DIGEST: Final = "docker-content-digest"


class PushApi(DeclaredRoutes):
    def __init__(self, pushes: Pushes) -> None:
        self._pushes = pushes

    @operation("POST", _UPLOADS + "/", None, Role.JOB, statuses=(201, 202))
    @operation("POST", _UPLOADS, None, Role.JOB, statuses=(201, 202))
    async def image_upload_begin(self, request: Request) -> Response:
        """Begin to push a blob; `?digest=` with the whole blob in the body, `?mount=` for one that
        is here."""
        name, query = name_of(request), request.query_params
        pusher = await self._pushes.pusher(request)
        if "mount" in query:
            check_digest(query["mount"])
            if await self._pushes.mount(name, query["mount"], query.get("from", ""), principal_of(request)):
                return _made_blob(name, query["mount"])
        if "digest" in query:
            check_digest(query["digest"])
        upload = await self._pushes.uploads.begin(name, pusher.principal.name)
        if "digest" in query:
            await self._received(request, upload)
            await self._pushes.uploads.finish(upload, query["digest"])
            return _made_blob(name, query["digest"])
        return _under_way(upload, 202)

    @operation("PATCH", _UPLOAD, None, Role.JOB, statuses=(202,))
    async def image_upload_chunk(self, request: Request) -> Response:
        """Send the next bytes of a blob."""
        upload = await self._upload(request)
        await self._received(request, upload)
        return _under_way(upload, 202)

    @operation("PUT", _UPLOAD, None, Role.JOB, statuses=(201,))
    async def image_upload_end(self, request: Request) -> Response:
        """Send the last bytes of a blob, and say its `?digest=`."""
        upload, digest = await self._upload(request), request.query_params.get("digest", "")
        check_digest(digest)
        if announced_size(request) or "content-range" in request.headers or "transfer-encoding" in request.headers:
            await self._received(request, upload)
        await self._pushes.uploads.finish(upload, digest)
        return _made_blob(upload.name, digest)

    @operation("GET", _UPLOAD, None, Role.JOB, statuses=(204,))
    async def image_upload(self, request: Request) -> Response:
        """How far a blob has come."""
        return _under_way(await self._upload(request), 204)

    @operation("DELETE", _UPLOAD, None, Role.JOB, statuses=(204,))
    async def image_upload_cancel(self, request: Request) -> Response:
        """Give up a blob that has not come to its end."""
        await self._pushes.uploads.cancel(await self._upload(request))
        return Response(status_code=204, headers=VERSION)

    @operation("PUT", _MANIFEST, None, Role.JOB, statuses=(201,), max_body=MOST_BYTES, changes_host=True)
    async def image_manifest_push(self, request: Request) -> Response:
        """Publish an image under its tag; by digest, keep a manifest for the index that will name
        it."""
        name, reference = name_of(request), request.path_params["reference"]
        pusher = await self._pushes.pusher(request)
        data = await body_of(request)
        digest = digest_of(data)
        kind = request.headers.get("content-type", "").partition(";")[0].strip()
        with told_as("MANIFEST_INVALID"):
            manifest = await in_heavy_thread(checked_manifest, data, kind)
            tag = _pushed_tag(reference, digest)
            if tag is None and manifest.subject is not None:
                tag = referrer_tag(manifest.subject.digest, digest)
            if tag is None:
                await self._pushes.keep_manifest(name, data, digest, pusher, principal_of(request))
            else:
                await self._pushes.publish(Image(name, tag), data, pusher, principal_of(request))
        subject = {} if manifest.subject is None else {"oci-subject": manifest.subject.digest}
        headers = VERSION | {"location": f"{V2_PATH}/{name}/manifests/{digest}", _DIGEST: digest} | subject
        return Response(status_code=201, headers=headers)

    @operation("DELETE", _MANIFEST, None, Role.JOB, statuses=(202,), changes_host=True)
    async def image_manifest_delete(self, request: Request) -> Response:
        """Remove a tag's bundle from the cluster; by digest, the bundles of all tags of this name
        that stand for it."""
        name, reference = name_of(request), request.path_params["reference"]
        pusher = await self._pushes.pusher(request, Role.OPERATOR)
        if not is_digest(reference) and not is_tag(reference):
            raise RegistryError("MANIFEST_INVALID", 400, f"{reference[:200]!r} is neither a tag nor a digest")
        if not await self._pushes.delete(name, reference, pusher, principal_of(request)):
            raise RegistryError("MANIFEST_UNKNOWN", 404, f"the manifest {reference[:200]!r}")
        return Response(status_code=202, headers=VERSION)

    @operation("DELETE", _BLOB, None, Role.JOB, statuses=(202,), changes_host=True)
    async def image_blob_delete(self, request: Request) -> Response:
        """Drop a blob that was pushed and that no image needs yet."""
        name, digest = name_of(request), request.path_params["digest"]
        check_digest(digest)
        pusher = await self._pushes.pusher(request)
        if not await self._pushes.drop_blob(name, digest, pusher, principal_of(request)):
            raise RegistryError("BLOB_UNKNOWN", 404, f"the blob {digest}")
        return Response(status_code=202, headers=VERSION)

    def _made(self, operation: Operation) -> Operation:
        return replace(operation, foreign_errors=True)

    async def _upload(self, request: Request) -> BlobUpload:
        name = name_of(request)
        pusher = await self._pushes.pusher(request)
        return self._pushes.uploads.get(request.path_params["upload"], name, pusher.principal.name)

    async def _received(self, request: Request, upload: BlobUpload) -> None:
        with told_as("BLOB_UPLOAD_INVALID"):
            chunk = chunk_of(request.headers.get("content-range"), request.headers.get("content-length"))
            await self._pushes.uploads.receive(upload, chunk, request.stream())


def _pushed_tag(reference: str, digest: str) -> str | None:
    """Returns the tag of a manifest that comes; None: it comes by its digest."""
    if is_digest(reference):
        if reference != digest:
            raise RegistryError("DIGEST_INVALID", 400, f"the manifest has the digest {digest}, and not {reference}")
        return None
    if not is_tag(reference) or is_referrer_tag(reference):
        raise TorrentdistError("invalid_request", detail=f"{reference[:200]!r} is no tag that may be used")
    return reference


def _under_way(upload: BlobUpload, status: int) -> Response:
    headers = {
        "location": f"{V2_PATH}/{upload.name}/blobs/uploads/{upload.id}",
        "range": upload.state.range,
        "docker-upload-uuid": upload.id,
    }
    return Response(status_code=status, headers=VERSION | headers)


def _made_blob(name: str, digest: str) -> Response:
    headers = {"location": f"{V2_PATH}/{name}/blobs/{digest}", _DIGEST: digest}
    return Response(status_code=201, headers=VERSION | headers)
