"""The loopback gateway of a host: bundles for the programs on this machine, and the host's own
controls.

Always: only published content leaves it, confined to its bundle.
Never: listen beyond loopback.
"""

from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from torrentdist.host.http.authentication import as_json, principal_of
from torrentdist.host.http.openapi import with_description
from torrentdist.host.http.operation import Handler, Operation, Router, api_app, operations_of
from torrentdist.host.http.web import CutShort
from torrentdist.host.telemetry.audit_log import Audit
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authorization import Role, check_readable, may_read, reads_everything
from torrentdist.supervisor.gateway.bundle_server import on_bundle_error
from torrentdist.supervisor.gateway.callers import GatewayCallers, JobCallers, Reads
from torrentdist.supervisor.hub.hub_api import HUB_PATH, on_hub_error
from torrentdist.supervisor.images.registry_errors import TOKEN_PATH, is_registry, registry_answer
from torrentdist.supervisor.objects.s3_errors import is_s3, s3_answer


def gateway_app(
    routers: Sequence[Router],
    readers: Reads | None,
    jobs: JobCallers,
    cut: Callable[[tuple[str, int]], None],
    audit: Audit,
) -> ASGIApp:
    """Builds the gateway. `readers`: what the users of this host may read; None: everything.
    `jobs`: the jobs whose users and tokens it knows.

    `cut` resets the connection of a client whose answer cannot be finished.
    """
    operations = with_description(operations_of(*routers), "torrentdist gateway")
    app = api_app(operations, around=lambda operation: _readable(operation, jobs), on_error=_on_error, audit=audit)
    return CutShort(GatewayCallers(app, readers, jobs, audit, error_answer), cut)


def _readable(operation: Operation, jobs: JobCallers) -> Handler:
    """Returns the operation's handler, for which a bundle that the sender may not read is not
    there. A job is there for those who may read all its bundles, as far as this host knows them.
    """

    async def handle(request: Request) -> Response:
        sender, named = principal_of(request), request.path_params
        if "id" in named:
            check_readable(sender, named["id"])
        if "job" in named and sender.role is not Role.JOB and not reads_everything(sender):
            job = ids.job_id(named["job"])
            needs = jobs.bundles_of([job])
            if not needs or not all(may_read(sender, bundle) for bundle in needs):
                raise TorrentdistError("job_not_found", id=job)
        return await operation.handler(request)

    return handle


async def _on_error(request: Request, exc: Exception) -> Response:
    """Answers with an error as the library that asked for this path understands it."""
    path = request.url.path
    if isinstance(exc, TorrentdistError) and is_registry(path):
        return registry_answer(exc, "" if path == TOKEN_PATH else str(request.url.replace(path=TOKEN_PATH, query="")))
    if isinstance(exc, TorrentdistError) and is_s3(path):
        return error_answer(path, exc)
    return await (on_hub_error if path.startswith(HUB_PATH) else on_bundle_error)(request, exc)


def error_answer(path: str, error: TorrentdistError) -> Response:
    """Tells an error as the protocol of this path does, also to who may not ask at all."""
    if is_s3(path):
        return s3_answer(path, error)
    return registry_answer(error) if is_registry(path) else as_json(path, error)
