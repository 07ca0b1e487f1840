"""The gateway as a container registry (OCI distribution specification 1.1): podman, containerd and
others pull images that are bundles. push_api.py takes those that they push.

Always: an image is fetched when its tag is first asked for, and its blobs stream while it arrives.
An image that does not exist is told at once, so that a runtime goes on to the next registry.
Never: change anything.
"""

from typing import Final

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.bundle.images.image_layout import INDEX, Descriptor
from torrentdist.bundle.images.image_names import Image, is_digest, is_name, is_tag, named_in
from torrentdist.host.host_store import HostStore
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.declared_routes import DeclaredRoutes, operation
from torrentdist.host.http.file_answers import FILE_TYPE, select
from torrentdist.host.http.http_conditions import Representation
from torrentdist.host.http.operation import FILE, Operation
from torrentdist.host.http.web import json_response
from torrentdist.model.errors import EXIT_UNAVAILABLE, TorrentdistError
from torrentdist.model.ids import Digest
from torrentdist.security.authorization import Proof, Role, check_own, check_readable
from torrentdist.supervisor.gateway.bundle_reader import sent, streamed
from torrentdist.supervisor.gateway.cluster_bundles import ClusterBundles
from torrentdist.supervisor.images.checked_blobs import CheckedBlobs
from torrentdist.supervisor.images.image_store import ImageManifest, ImageStore
from torrentdist.supervisor.images.pushers import Pushers, token_of
from torrentdist.supervisor.images.registry_errors import TOKEN_PATH, V2_PATH, VERSION, RegistryError

_MANIFEST: Final = V2_PATH + "/{name:any_path}/manifests/{reference}"
_BLOB: Final = V2_PATH + "/{name:any_path}/blobs/{digest}"
_DIGEST: Final = "docker-content-digest"
MOST_TAGS: Final = 1000
NOBODY: Final = "anonymous"
"""The bearer token of a client without a password."""
TOKEN_SECS: Final = 300


class RegistryApi(DeclaredRoutes):
    def __init__(
        self,
        store: HostStore,
        images: ImageStore,
        checked: CheckedBlobs,
        pushers: Pushers,
        cluster: ClusterBundles,
    ) -> None:
        self._store = store
        self._images = images
        self._pushers = pushers
        self._cluster = cluster
        self._checked = checked

    @operation("GET", V2_PATH, None, Role.JOB)
    @operation("GET", V2_PATH + "/", None, Role.JOB)
    async def registry(self, request: Request) -> Response:
        """Whether this is a container registry. A client learns here that a push needs a token,
        and whether the one that it has is right."""
        if self._pushers.needs_token:
            await self._check_token(request, token_of(request))
        return json_response({}, headers=VERSION)

    @operation("GET", TOKEN_PATH, None, Role.JOB)
    async def registry_token(self, request: Request) -> Response:
        """The bearer token that a client of registries shows from here on: the password that it
        gives, unless the masters refuse it. One without a password gets a token that opens what
        needs none."""
        if given := token_of(request):
            await self._check_token(request, given)
        token = given or NOBODY
        return json_response({"token": token, "access_token": token, "expires_in": TOKEN_SECS}, headers=VERSION)

    async def _check_token(self, request: Request, token: str) -> None:
        """Raises the error of a token that the masters refuse. Without a master each passes: pulls
        need none, and a push has its token verified itself."""
        if principal_of(request).how is Proof.CAPABILITY:
            return
        try:
            await self._pushers.principal(token)
        except TorrentdistError as error:
            if error.exit_code != EXIT_UNAVAILABLE:
                raise

    @operation("GET", _MANIFEST, None, Role.JOB, statuses=FILE)
    async def image_manifest(self, request: Request) -> Response:
        """A manifest of an image, by its tag or digest; an image that is not here is fetched by its
        tag."""
        name, reference = name_of(request), request.path_params["reference"]
        found = await self._manifest(request, name, reference)
        tag = found.digest.removeprefix("sha256:")
        chosen = select(request, Representation(tag, len(found.data)), Digest(tag))
        if isinstance(chosen, Response):
            return chosen
        headers = chosen.headers | VERSION | {_DIGEST: found.digest}
        data = found.data[chosen.start : chosen.end]
        return Response(data, status_code=chosen.status, headers=headers, media_type=found.file.kind)

    @operation("GET", _BLOB, None, Role.JOB, statuses=FILE)
    async def image_blob(self, request: Request) -> Response:
        """A blob of an image that is here or arrives."""
        name, digest = name_of(request), request.path_params["digest"]
        check_digest(digest)
        found = await self._images.blob(name, digest, principal_of(request))
        if found is None:
            raise RegistryError("BLOB_UNKNOWN", 404, f"the blob {digest}")
        plain, content = Digest(digest.removeprefix("sha256:")), found.content
        chosen = select(request, Representation(plain, found.size), plain if content is None else content.meta.digest)
        chosen.headers.update({**VERSION, _DIGEST: digest})
        if isinstance(chosen, Response):
            return chosen
        if content is not None and content.published():
            await self._store.touch(content.meta.digest)
        if content is not None and found.file is not None and self._checked.is_right(found, digest):
            return await sent(request, content, found.file, chosen)
        return await streamed(request, self._checked.read(found, digest, chosen.start, chosen.end), chosen, FILE_TYPE)

    @operation("GET", V2_PATH + "/{name:any_path}/tags/list", None, Role.JOB)
    async def image_tags(self, request: Request) -> Response:
        """The tags of an image in the cluster."""
        name, query, caller = name_of(request), request.query_params, principal_of(request)
        bundles = await self._cluster.ids()
        tags = [tag for tag in self._images.tags(name, bundles, caller) if tag > query.get("last", "")]
        if not tags and "last" not in query:
            raise RegistryError("NAME_UNKNOWN", 404, f"the image {name!r}")
        most = min(MOST_TAGS, _count(query.get("n", str(MOST_TAGS))))
        headers = dict(VERSION)
        if 0 < most < len(tags):
            headers["link"] = f'<{V2_PATH}/{name}/tags/list?n={most}&last={tags[most - 1]}>; rel="next"'
        return json_response({"name": name, "tags": tags[:most]}, headers=headers)

    @operation("GET", V2_PATH + "/{name:any_path}/referrers/{digest}", None, Role.JOB)
    async def image_referrers(self, request: Request) -> Response:
        """The manifests on this host that name another one as their subject, such as
        signatures."""
        name, digest = name_of(request), request.path_params["digest"]
        check_digest(digest)
        wanted = request.query_params.get("artifactType")
        found = [_described(one) for one in await self._images.referrers(name, digest, principal_of(request))]
        listed = [one for one in found if wanted in (None, one.artifact_type)]
        headers = dict(VERSION) | ({} if wanted is None else {"oci-filters-applied": "artifactType"})
        answer = json_response({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed}, headers=headers)
        answer.headers["content-type"] = INDEX
        return answer

    def _made(self, operation: Operation) -> Operation:
        return replace(operation, foreign_errors=True)

    async def _manifest(self, request: Request, name: str, reference: str) -> ImageManifest:
        caller = principal_of(request)
        if is_digest(reference):
            found = await self._images.by_digest(name, reference, caller)
            if found is None:
                raise RegistryError("MANIFEST_UNKNOWN", 404, f"the manifest {reference}")
            return found
        if not is_tag(reference):
            raise RegistryError("MANIFEST_INVALID", 400, f"the tag {reference[:200]!r}")
        image = Image(name, reference)
        check_own(caller, {"id": image.bundle})
        check_readable(caller, image.bundle)
        return await self._images.by_tag(image)


def name_of(request: Request) -> str:
    """Returns the name of the image that a request is about."""
    name = str(request.path_params["name"])
    if not is_name(name):
        raise RegistryError("NAME_INVALID", 400, f"the image name {name[:200]!r}")
    return named_in(request.query_params.get("ns", ""), name)


def check_digest(text: str) -> None:
    if not is_digest(text):
        raise RegistryError("DIGEST_INVALID", 400, f"{text[:100]!r} is no digest of SHA-256")


def _described(manifest: ImageManifest) -> Descriptor:
    file = manifest.file
    kind = file.artifact_type or (file.config.media_type if file.config is not None else None)
    return Descriptor(file.kind, manifest.digest, len(manifest.data), file.annotations, kind)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise TorrentdistError("invalid_request", detail=f"n={text[:100]!r} is no number")
    return int(text)
