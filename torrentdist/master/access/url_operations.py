"""The changes of URLs: make one, and replace the key that signs them. Each URL has a token record,
so that it is listed, audited, and revoked like a token.

Pure functions from a snapshot to ZooKeeper operations, which changes/commit.py commits.
Always: a URL is for no more and no longer than its maker's own rights. The number of URLs is
bounded, and each maker may have half of it. A URL that was made before the present key is void,
does not count, and is not signed again.
Never: put a capability into a record.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import ClusterSnapshot, TokenEntry
from torrentdist.cluster.session.znode_operations import Create, Delete, Op, Set
from torrentdist.model.access.token_messages import TokenRecord
from torrentdist.model.access.url_messages import KEY_NAME, KEY_ROLE, URL_ROLE, UrlBody, UrlKeyView, UrlView
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.records import encode
from torrentdist.security.authorization import Principal, Role, check_readable, checked_pattern, reads_everything
from torrentdist.security.capabilities import LONGEST_SECS, checked_path, is_one_bundle

MOST_URLS = 1000
MOST_OF_ONE = 500
"""Most URLs of one maker."""
KEEP_SECS = 3600.0
"""How long a URL that has ended is kept: a gateway's clock may be behind. Only revoked ones matter
then, so others go earlier where their maker needs the room."""
MOST_FORGOTTEN = 50


class WantedUrl(msgspec.Struct, frozen=True):
    record: TokenRecord
    path: str


def wanted_url(body: UrlBody, maker: Principal, name: str, now: float) -> WantedUrl:
    """Returns the URL that a request asks for. Raises an error if its maker may not read that. A
    host may pass on nothing: it has bundles for its own programs."""
    if maker.role is Role.HOST:
        raise TorrentdistError("forbidden", name=maker.name, detail="a host makes no URLs; a person or a program does")
    if not 0 < body.ttl_secs <= LONGEST_SECS:
        raise TorrentdistError("invalid_request", detail="a URL lives for more than 0 s, and for 7 days at most")
    bundles = checked_pattern(body.bundles)
    if is_one_bundle(bundles):
        check_readable(maker, bundles)
    elif not reads_everything(maker) and bundles not in maker.reads:
        detail = f"{maker.name} may make URLs of single bundles, and of a pattern that is its own"
        raise TorrentdistError("forbidden", name=maker.name, detail=detail)
    until = now + body.ttl_secs
    record = TokenRecord(
        name=name,
        role=URL_ROLE,
        bundles=bundles,
        reads="",
        hash="",
        created_at=now,
        created_by=maker.name,
        expires_at=until if maker.expires_at is None else min(until, maker.expires_at),
    )
    return WantedUrl(record, checked_path(body.path))


def url_ops(snapshot: ClusterSnapshot, wanted: WantedUrl) -> Sequence[Op]:
    """Writes the record of a URL, and forgets URLs that have ended."""
    record, tokens = wanted.record, snapshot.tokens
    # It is not older than the key that signs it, whatever the clock of an earlier leader said.
    record = replace(record, created_at=max(record.created_at, key_view(snapshot).since))
    urls = {name: entry for name, entry in tokens.items() if entry.record.role == URL_ROLE}
    signed = {name: entry for name, entry in urls.items() if not _is_void(entry.record, snapshot)}
    void = sorted(urls.keys() - signed.keys())[:MOST_FORGOTTEN]
    ended = _to_forget(signed, wanted.record)
    left = [entry.record.created_by for name, entry in signed.items() if name not in ended]
    own = left.count(record.created_by)
    if own >= MOST_OF_ONE or len(left) >= MOST_URLS:
        raise TorrentdistError("too_many_urls", name=record.created_by, own=own, count=len(left))
    if record.name in tokens:
        raise TorrentdistError("token_exists", name=record.name)
    forgotten = [Delete(paths.token(name), tokens[name].version) for name in (*void, *ended)]
    return [Create(paths.token(record.name), encode(record)), *forgotten]


def _is_void(record: TokenRecord, snapshot: ClusterSnapshot) -> bool:
    """Whether a URL was made before the present key, so that no gateway takes it."""
    return record.created_at < key_view(snapshot).since


def _to_forget(urls: Mapping[str, TokenEntry], record: TokenRecord) -> list[str]:
    """Returns URLs that ended long ago, and those of the new one's maker that ended lately, as many
    as have to go for it."""
    now = record.created_at
    old = sorted(name for name, entry in urls.items() if _end(entry) + KEEP_SECS < now)[:MOST_FORGOTTEN]
    own = {n: e for n, e in urls.items() if e.record.created_by == record.created_by and n not in old}
    lately = sorted((_end(e), n) for n, e in own.items() if _end(e) <= now and e.record.revoked_at is None)
    return [*old, *(name for _, name in lately[: max(0, len(own) + 1 - MOST_OF_ONE)])]


def url_view(snapshot: ClusterSnapshot, wanted: WantedUrl) -> UrlView:
    record = snapshot.tokens[wanted.record.name].record
    return UrlView(
        name=record.name,
        bundles=record.bundles,
        path=wanted.path,
        expires_at=record.expires_at or 0.0,
        created_by=record.created_by,
    )


def key_ops(snapshot: ClusterSnapshot, salt: str, by: str, now: float) -> Sequence[Op]:
    """Replaces the key of URLs."""
    known = snapshot.tokens.get(KEY_NAME)
    if known is not None and known.record.role != KEY_ROLE:
        raise TorrentdistError("token_exists", name=KEY_NAME)
    at = now if known is None else max(now, known.record.created_at + 0.001)
    record = TokenRecord(name=KEY_NAME, role=KEY_ROLE, reads="", hash=salt, created_at=at, created_by=by)
    path, data = paths.token(KEY_NAME), encode(record)
    return [Create(path, data) if known is None else Set(path, data, known.version)]


def key_record(tokens: Mapping[str, TokenEntry]) -> TokenRecord | None:
    """Returns the record that the key of URLs depends on; None: the first key counts."""
    entry = tokens.get(KEY_NAME)
    return entry.record if entry is not None and entry.record.role == KEY_ROLE else None


def salt_for(snapshot: ClusterSnapshot, name: str) -> str:
    """Returns the salt of the key that signs a URL. Raises `url_revoked` if the URL was made before
    that key: its record may be forgotten, so nobody could revoke it any more."""
    entry = snapshot.tokens.get(name)
    if entry is None or _is_void(entry.record, snapshot):
        raise TorrentdistError("url_revoked", name=name)
    return key_salt(snapshot)


def key_salt(snapshot: ClusterSnapshot) -> str:
    record = key_record(snapshot.tokens)
    return "" if record is None else record.hash


def key_view(snapshot: ClusterSnapshot) -> UrlKeyView:
    record = key_record(snapshot.tokens)
    return UrlKeyView(since=0.0 if record is None else record.created_at)


def revoked_urls(tokens: Mapping[str, TokenEntry]) -> dict[str, float]:
    """Returns the URLs that were revoked, or whose maker's token was, each with its end."""
    return {
        name: _end(entry)
        for name, entry in tokens.items()
        if entry.record.role == URL_ROLE and _is_revoked(entry.record, tokens)
    }


def _is_revoked(record: TokenRecord, tokens: Mapping[str, TokenEntry]) -> bool:
    """Whether a URL is revoked. A token that was made later under its maker's name is another
    one."""
    maker = tokens.get(record.created_by)
    by_maker = maker is not None and (
        maker.record.revoked_at is not None or maker.record.created_at > record.created_at
    )
    return record.revoked_at is not None or by_maker


def _end(entry: TokenEntry) -> float:
    return entry.record.expires_at or 0.0
