"""The changes of tokens: create one, change its quotas, and revoke it.

Each is a pure function from a snapshot to ZooKeeper operations, which changes/commit.py commits.
Always: a usable token is never replaced by another one of its name.
Never: see a secret.
"""

from collections.abc import Callable, Sequence

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import ClusterSnapshot, TokenEntry
from torrentdist.cluster.session.znode_operations import Create, Delete, Op, Set
from torrentdist.master.changes.answered_requests import Mutation
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.policies.quotas import bytes_kept, distributions_running
from torrentdist.model import ids
from torrentdist.model.access.token_messages import QuotaBody, QuotaView, TokenBody, TokenRecord, TokenState, TokenView
from torrentdist.model.access.url_messages import KEY_NAME, KEY_ROLE, URL_ROLE
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.records import encode
from torrentdist.model.wire.view import view_of
from torrentdist.security.authorization import ALL_BUNDLES, STRANGER, TOKEN_HOLDER, Role, checked_pattern
from torrentdist.security.passes import PASS_HOLDER
from torrentdist.security.tokens import ROLES, is_hash, is_unbound, reads_of

MOST_TOKENS = 1000
RESERVED = frozenset({KEY_NAME, *(principal.name for principal in (STRANGER, TOKEN_HOLDER, PASS_HOLDER))})
"""Names that the audit gives to senders without a name of their own, and that of a record."""
LONGEST_TTL_SECS = 10 * 365 * 86400.0
KEEP_SECS = 30 * 86400.0
"""How long a token that has ended is still shown."""
MOST_FORGOTTEN = 50
MOST_QUOTA = 2**62


class TokenOperations:
    """`now` returns the time by ZooKeeper's clock; by ours while it is unknown."""

    def __init__(self, changes: LeaderChanges, now: Callable[[], float]) -> None:
        self._changes = changes
        self._now = now

    async def create(self, mutation: Mutation | None, body: TokenBody, by: str) -> bytes:
        record = new_record(body, by, self._now())
        return await self._changes.make(
            mutation,
            lambda s: creation_ops(s, record),
            lambda s: token_view(s.tokens[record.name].record, record.created_at),
        )

    async def set_quota(self, mutation: Mutation | None, name: str, body: QuotaBody) -> bytes:
        return await self._changes.make(
            mutation,
            lambda s: quota_ops(s, name, body),
            lambda s: quota_view(s, name),
        )

    async def revoke(self, mutation: Mutation | None, name: str) -> bytes:
        now = self._now()
        return await self._changes.make(
            mutation, lambda s: revocation_ops(s, name, now), lambda s: token_view(s.tokens[name].record, now)
        )


def new_record(body: TokenBody, by: str, now: float) -> TokenRecord:
    """Returns the record that a request asks for. Raises an error if the request is wrong."""
    name = ids.token_name(body.name)
    if name in RESERVED:
        raise TorrentdistError("invalid_request", detail=f"no token can have the name {name!r}; it is in use")
    if body.role not in ROLES:
        raise TorrentdistError("invalid_request", detail=f"a token's role is one of {', '.join(ROLES)}")
    if body.ttl_secs is not None and not 0 < body.ttl_secs <= LONGEST_TTL_SECS:
        raise TorrentdistError("invalid_request", detail="a token lives for more than 0 s, and for ten years at most")
    if body.role == Role.OPERATOR and (body.bundles != ALL_BUNDLES or body.reads):
        detail = "an operator may do everything, so its token has no pattern: leave out --bundles and --reads"
        raise TorrentdistError("invalid_request", detail=detail)
    reads = checked_pattern(body.reads) if body.reads else ""
    if body.bundles == ALL_BUNDLES and reads not in ("", ALL_BUNDLES):
        detail = f"it may read everything, because its bundles are '*', so --reads {reads} adds nothing: "
        raise TorrentdistError("invalid_request", detail=detail + "give a pattern with --bundles")
    if not is_hash(body.hash):
        raise TorrentdistError("invalid_request", detail="the hash is not SHA-256 in 64 lower-case hex digits")
    return TokenRecord(
        name=name,
        role=body.role,
        bundles=checked_pattern(body.bundles),
        reads=reads,
        hash=body.hash,
        created_at=now,
        created_by=by,
        expires_at=None if body.ttl_secs is None else now + body.ttl_secs,
        max_bytes=checked_quota(body.max_bytes),
        max_distributions=checked_quota(body.max_distributions),
    )


def checked_quota(limit: int) -> int:
    if not 0 <= limit <= MOST_QUOTA:
        raise TorrentdistError("invalid_request", detail=f"a quota is 0 (no limit) to {MOST_QUOTA}")
    return limit


def quota_ops(snapshot: ClusterSnapshot, name: str, body: QuotaBody) -> Sequence[Op]:
    """Changes the quotas of a token."""
    entry = _known(snapshot, name)
    given = {"max_bytes": body.max_bytes, "max_distributions": body.max_distributions}
    changes = {key: checked_quota(limit) for key, limit in given.items() if limit is not None}
    record = msgspec.structs.replace(entry.record, **changes)
    return [] if record == entry.record else [Set(paths.token(name), encode(record), entry.version)]


def quota_view(snapshot: ClusterSnapshot, name: str) -> QuotaView:
    record = _known(snapshot, name).record
    return QuotaView(
        name=name,
        max_bytes=record.max_bytes,
        bytes=bytes_kept(snapshot, name),
        max_distributions=record.max_distributions,
        distributions=distributions_running(snapshot, name),
    )


def _known(snapshot: ClusterSnapshot, name: str) -> TokenEntry:
    entry = snapshot.tokens.get(name)
    if entry is None:
        raise unknown_token(name)
    return entry


def unknown_token(name: str) -> TorrentdistError:
    return TorrentdistError("not_found", what=f"a token {name!r}")


def creation_ops(snapshot: ClusterSnapshot, record: TokenRecord) -> Sequence[Op]:
    """Writes a token under a name that is free, or whose token has ended, and forgets old ones."""
    now, tokens = record.created_at, snapshot.tokens
    known = tokens.get(record.name)
    if known is not None and known.record.is_usable(now):
        raise TorrentdistError("token_exists", name=record.name)
    ended = [name for name, entry in tokens.items() if name != record.name and _ended_long_ago(entry, now)]
    forgotten = sorted(ended)[:MOST_FORGOTTEN]
    count = sum(entry.record.role not in (URL_ROLE, KEY_ROLE) for entry in tokens.values())
    if known is None and count - len(forgotten) >= MOST_TOKENS:
        raise TorrentdistError("too_large", what="the list of tokens", size=count + 1, limit=MOST_TOKENS)
    path, data = paths.token(record.name), encode(record)
    written: Op = Create(path, data) if known is None else Set(path, data, known.version)
    return [written, *(Delete(paths.token(name), tokens[name].version) for name in forgotten)]


def revocation_ops(snapshot: ClusterSnapshot, name: str, now: float) -> Sequence[Op]:
    """Marks a token as revoked; nothing changes if it was revoked before."""
    entry = _known(snapshot, name)
    if entry.record.role == KEY_ROLE:
        raise unknown_token(name)
    if entry.record.revoked_at is not None:
        return []
    return [Set(paths.token(name), encode(msgspec.structs.replace(entry.record, revoked_at=now)), entry.version)]


def _ended_long_ago(entry: TokenEntry, now: float) -> bool:
    ends = [at for at in (entry.record.revoked_at, entry.record.expires_at) if at is not None]
    return bool(ends) and min(ends) < now - KEEP_SECS


def token_view(record: TokenRecord, now: float) -> TokenView:
    state = TokenState.USABLE if record.is_usable(now) else TokenState.EXPIRED
    return view_of(
        TokenView,
        record,
        state=state if record.revoked_at is None else TokenState.REVOKED,
        has_quota=record.max_bytes > 0 or record.max_distributions > 0,
        reads=None if is_unbound(record) else ",".join(reads_of(record)),
    )
