"""The gateway as S3 for reading: with the endpoint http://127.0.0.1:7070/s3, each bundle is a
bucket.

Always: path style. The sender is known as everywhere on the gateway, so a signature is neither
needed nor looked at. What is sent comes from bundle_reader.py, so that an object streams while its
bundle arrives. Errors are those of S3.
Never: write, or tell a bundle that the sender may not read from one that does not exist.
"""

from typing import Final
from urllib.parse import unquote_to_bytes

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.bundle.metafile import FileEntry
from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.declared_routes import DeclaredRoutes, operation
from torrentdist.host.http.file_answers import select
from torrentdist.host.http.http_conditions import Representation
from torrentdist.host.http.operation import FILE, Operation
from torrentdist.host.process.heavy_work import in_heavy_thread
from torrentdist.host.recent_results import RecentResults
from torrentdist.host.runtime import HostRuntime
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authorization import Role, check_own, check_readable, may_read
from torrentdist.supervisor.bundles.host_content import HostContent
from torrentdist.supervisor.gateway.bundle_reader import BundleReader, sent
from torrentdist.supervisor.gateway.cluster_bundles import ClusterBundles
from torrentdist.supervisor.objects import s3_documents
from torrentdist.supervisor.objects.bucket_listing import ObjectIndex, list_page
from torrentdist.supervisor.objects.bucket_names import bucket_of, bundle_of
from torrentdist.supervisor.objects.list_requests import ListRequest
from torrentdist.supervisor.objects.s3_errors import S3_PATH, xml_answer

REGION: Final = "us-east-1"
_BUCKET: Final = S3_PATH + "/{bucket}"
_OBJECT: Final = S3_PATH + "/{bucket}/{key:any_path}"
_ANSWERED: Final = frozenset({"location", "versioning"})
"""What can be asked about a bucket."""
_OTHERS: Final = frozenset(
    {"accelerate", "acl", "analytics", "attributes", "cors", "encryption", "intelligent-tiering", "inventory"}
    | {"legal-hold", "lifecycle", "logging", "metrics", "notification", "object-lock", "ownershipControls", "policy"}
    | {"policyStatus", "publicAccessBlock", "replication", "requestPayment", "retention", "select", "tagging"}
    | {"torrent", "uploadId", "uploads", "versions", "website"}
)
"""What S3 has besides, and no bundle has."""


class ObjectApi(DeclaredRoutes):
    def __init__(self, runtime: HostRuntime, reader: BundleReader, cluster: ClusterBundles) -> None:
        self._store = runtime.store
        self._reader = reader
        self._cluster = cluster
        self._indexes: RecentResults[ObjectIndex] = RecentResults()

    @operation("GET", S3_PATH, None, Role.JOB)
    @operation("GET", S3_PATH + "/", None, Role.JOB)
    async def s3_buckets(self, request: Request) -> Response:
        """The bundles of the cluster as S3's buckets."""
        sender = principal_of(request)
        readable = [bundle for bundle in await self._cluster.ids() if may_read(sender, bundle)]
        return xml_answer(s3_documents.bucket_list(sorted(map(bucket_of, readable)), sender.name))

    @operation("GET", _BUCKET, None, Role.JOB)
    @operation("GET", _BUCKET + "/", None, Role.JOB)
    async def s3_bucket(self, request: Request) -> Response:
        """The objects of a bucket, which are the files of a bundle; a bundle that is not here is
        fetched."""
        content = await self._content(request)
        asked = _asked(request)
        if "location" in asked:
            return xml_answer(s3_documents.document("LocationConstraint", ""))
        if "versioning" in asked:
            return xml_answer(s3_documents.document("VersioningConfiguration", ""))
        if request.method == "HEAD":
            return Response(headers={"x-amz-bucket-region": REGION}, media_type="application/xml")
        wanted = ListRequest.of(request.path_params["bucket"], request.query_params)
        index = await self._index(content)
        return xml_answer(await in_heavy_thread(_listed, index, wanted))

    @operation("GET", _OBJECT, None, Role.JOB, statuses=FILE)
    async def s3_object(self, request: Request) -> Response:
        """One object, or its head; a bundle that is not here is fetched."""
        content = await self._content(request)
        _asked(request)
        file = await self._file(request, content)
        digest = content.meta.digest
        chosen = select(request, Representation(file.tag, file.size, s3_documents.MODIFIED_SECS), digest)
        if isinstance(chosen, Response):
            return _unfit(request, chosen, file)
        if content.published():
            await self._store.touch(digest)
        return await sent(request, content, file, chosen)

    @operation("PUT", _OBJECT, None, Role.JOB)
    @operation("POST", _OBJECT, None, Role.JOB)
    @operation("DELETE", _OBJECT, None, Role.JOB)
    @operation("PUT", _BUCKET, None, Role.JOB)
    @operation("POST", _BUCKET, None, Role.JOB)
    @operation("DELETE", _BUCKET, None, Role.JOB)
    async def s3_change(self, request: Request) -> Response:
        """Refuses a change: a bundle never changes."""
        detail = "a bundle never changes: `torrentdist upload` publishes a new one, and `bundle rm` removes one"
        raise TorrentdistError("forbidden", detail=detail)

    def _made(self, operation: Operation) -> Operation:
        return replace(operation, foreign_errors=True)

    async def _content(self, request: Request) -> HostContent:
        bundle, sender = bundle_of(request.path_params["bucket"]), principal_of(request)
        check_own(sender, {"id": bundle})
        check_readable(sender, bundle)
        return await self._reader.content(bundle)

    async def _index(self, content: HostContent) -> ObjectIndex:
        tree = await self._reader.tree(content)
        return await self._indexes.get(content.meta.digest, lambda: in_heavy_thread(ObjectIndex, content.meta, tree))

    async def _file(self, request: Request, content: HostContent) -> FileEntry:
        key = _key(request)
        found = (await self._reader.tree(content)).find(key) if key and not key.endswith("/") else None
        if found is None or found.file is None:
            raise TorrentdistError("not_found", what=f"{key!r} in this bundle")
        return found.file


def _listed(index: ObjectIndex, wanted: ListRequest) -> bytes:
    page = list_page(index.keys, wanted.page)
    return s3_documents.object_list(index, page, wanted.repeated(page), as_urls=wanted.as_urls)


def _asked(request: Request) -> frozenset[str]:
    """Returns what a request asks about its bucket or object. Raises an error for what no bundle
    has."""
    asked = frozenset(request.query_params)
    if others := sorted(asked & _OTHERS):
        raise TorrentdistError("invalid_request", detail=f"{others[0]} of S3 is nothing that a bundle has")
    return asked & _ANSWERED


def _key(request: Request) -> str:
    """Returns the object's key, which is the rest of the path as routes split it: decoded first.
    Starlette's path would have no byte that is not UTF-8, but another one in its place."""
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    return unquote_to_bytes(raw).split(b"/", 3)[3].decode("utf-8", "surrogateescape")


def _unfit(request: Request, answer: Response, file: FileEntry) -> Response:
    """Returns the answer without content, or raises the error that S3 has instead of it."""
    if answer.status_code == 416:
        raise TorrentdistError("range_not_satisfiable", range=request.headers["range"], size=file.size)
    if answer.status_code == 412:
        raise TorrentdistError("precondition_failed", field="a condition of the request", tag=file.tag)
    return answer
