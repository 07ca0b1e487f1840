"""The HTTP application of a master: its routers, the API description, and how old its answers may
be.

Always: any master answers reads; a change that a standby is asked for is refused with the leader's
name.
Never: decide anything. Handlers check what comes in, call one collaborator, and render a view.
"""

import time
from collections.abc import Awaitable, Callable, Iterable

import msgspec
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Scope

from torrentdist.host.http.authentication import Authentication, OtherProof, bearer_of
from torrentdist.host.http.openapi import with_description
from torrentdist.host.http.operation import Router, api_app, open_prefixes, operations_of
from torrentdist.host.http.web import on_torrentdist_error
from torrentdist.host.telemetry.audit_log import Audit
from torrentdist.master.access.host_bundles import HostBundles
from torrentdist.master.access.job_keys import JobKeys
from torrentdist.master.console.console_door import ConsoleDoor
from torrentdist.master.console.visits import Sessions
from torrentdist.master.http.dry_runs import DryRuns
from torrentdist.master.master_core import MasterCore
from torrentdist.master.reads.answer_freshness import Fresh, confirmed
from torrentdist.master.reads.saved_records import Records
from torrentdist.model.access.token_messages import TokenRecord
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authorization import Principal
from torrentdist.security.job_token import PREFIX as JOB_TOKEN
from torrentdist.security.tls_contexts import PeerCertificate
from torrentdist.security.tokens import principal_of_token


class Senders(msgspec.Struct, frozen=True):
    """What the application knows of those who send requests."""

    audit: Audit
    sessions: Sessions
    bundles: HostBundles
    job_keys: JobKeys


def master_app(core: MasterCore, routers: Iterable[Router], leads: Callable[[], bool], senders: Senders) -> ASGIApp:
    mirror, records, guard = core.session.mirror, core.records, core.host.guard
    operations = with_description(operations_of(*routers), "torrentdist master")
    app = api_app(
        operations,
        around=lambda operation: confirmed(senders.bundles.checked(operation), mirror, records),
        on_error=_error_answer(records),
        audit=senders.audit,
    )
    fresh = Fresh(app, mirror, records, leads)
    by_token = _by_token(records, senders.job_keys)
    known = Authentication(
        fresh,
        guard.token,
        open_prefixes(operations),
        lambda scope: by_token(scope) or senders.sessions.principal(scope),
        audit=senders.audit,
        certificates=guard.rules(lambda peer: _is_revoked(records, peer)),
    )
    return DryRuns(ConsoleDoor(known))


def _is_revoked(records: Records, peer: PeerCertificate) -> bool:
    host = records.snapshot().hosts.get(peer.identity.id)
    return host is not None and host.record.refuses(peer.begins_at)


def _by_token(records: Records, keys: JobKeys) -> OtherProof:
    def principal(scope: Scope) -> Principal | None:
        """The principal of a token with a name, or of a job's token. Every master knows the
        records of both, also while ZooKeeper is away."""
        token = bearer_of(Headers(scope=scope).get("authorization", ""))
        if token.startswith(JOB_TOKEN):
            return keys.principal(token)
        now = records.server_now() or time.time()
        return principal_of_token(token, lambda name: _record_of(records, name), now)

    return principal


def _record_of(records: Records, name: str) -> TokenRecord | None:
    entry = records.snapshot().tokens.get(name)
    return None if entry is None else entry.record


def _error_answer(records: Records) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, exc: Exception) -> Response:
        """Saved records may lack a bundle that exists, or an assignment, so the client is told to
        ask another master."""
        known_later = ("bundle_not_found", "not_for_host")
        if isinstance(exc, TorrentdistError) and exc.code in known_later and records.from_file():
            age = records.stale_secs() or 0
            detail = f"{exc.message} in the records that this master saved {age:.0f} s ago"
            exc = TorrentdistError("zookeeper_unavailable", detail=detail)
        return await on_torrentdist_error(request, exc)

    return answer
