"""Keeps revocations through the restore of an older backup: this master revokes again all that it
knows to be revoked.

A master knows what its records have shown since its start, and what its file of saved records
shows.
Always: only records of the same cluster count, and a revocation only ever adds to the records.
"""

from collections.abc import Mapping
from functools import partial

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.records.record_index import Follower
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Create, Op, Set
from torrentdist.log import get_logger
from torrentdist.master.changes.record_loop import LOOK_SECS, RecordLoop
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.master_session import MasterSession
from torrentdist.model.access.host_record import HostRecord
from torrentdist.model.access.token_messages import TokenRecord
from torrentdist.model.access.url_messages import KEY_NAME, KEY_ROLE
from torrentdist.model.records import encode

log = get_logger()


class Known(msgspec.Struct, frozen=True):
    """The revocations of one cluster."""

    cluster: str = ""
    hosts: Mapping[str, HostRecord] = {}
    tokens: Mapping[str, TokenRecord] = {}


def learned(known: Known, snapshot: ClusterSnapshot) -> Known:
    """Returns what is known after a look at these records."""
    if snapshot.cluster is None:
        return known
    if snapshot.cluster.id != known.cluster:
        known = Known(snapshot.cluster.id)
    hosts = {id_: e.record for id_, e in snapshot.hosts.items() if e.record.revoked_until}
    older = {id_: r for id_, r in known.hosts.items() if id_ not in hosts or hosts[id_].revoked_until < r.revoked_until}
    tokens = {name: e.record for name, e in snapshot.tokens.items() if _is_kept(e.record)}
    tokens = {**known.tokens, **tokens}
    if (key := known.tokens.get(KEY_NAME)) is not None and _is_forgotten(tokens[KEY_NAME], key):
        tokens[KEY_NAME] = key
    return Known(known.cluster, {**hosts, **older}, tokens)


def forgotten_ops(known: Known, snapshot: ClusterSnapshot) -> list[Op]:
    """Returns the writes that revoke again what these records do not show as revoked."""
    if snapshot.cluster is None or snapshot.cluster.id != known.cluster:
        return []
    ops: list[Op] = []
    for id_, host in sorted(known.hosts.items()):
        entry = snapshot.hosts.get(id_)
        if entry is None:
            ops.append(Create(paths.host(id_), encode(host)))
        elif entry.record.revoked_until < host.revoked_until:
            ops.append(Set(paths.host(id_), encode(host), entry.version))
    for name, token in sorted(known.tokens.items()):
        there = snapshot.tokens.get(name)
        if there is None and token.role == KEY_ROLE:
            ops.append(Create(paths.token(name), encode(token)))
        elif there is not None and _is_forgotten(there.record, token):
            ops.append(Set(paths.token(name), encode(token), there.version))
    return ops


def _is_kept(record: TokenRecord) -> bool:
    return record.revoked_at is not None or record.role == KEY_ROLE


def _is_forgotten(there: TokenRecord, known: TokenRecord) -> bool:
    """Whether a record is from before a revocation, or a new key of URLs, that is known."""
    if known.role == KEY_ROLE:
        return there.role == KEY_ROLE and there.created_at < known.created_at
    return there.hash == known.hash and there.revoked_at is None


class KeptRevocations:
    """`saved` are the records that this master had at its start."""

    def __init__(self, session: MasterSession, leadership: Leadership, saved: ClusterSnapshot) -> None:
        self._leadership = leadership
        self._known = learned(Known(), saved)
        self._follower = Follower()
        self._is_settled = False
        """Whether this leader has revoked again all that these records had forgotten."""
        self._loop = RecordLoop(session.mirror, "revocations from before a restore")

    async def run(self) -> None:
        await self._loop.run(self._step)

    async def _step(self, snapshot: ClusterSnapshot) -> float:
        news = self._follower.news(snapshot)
        if news is None or news.hosts or news.tokens or news.cluster:
            self._known = learned(self._known, snapshot)
            self._is_settled = False
        if not self._leadership.is_leader():
            self._is_settled = False
        elif not self._is_settled:
            ops = forgotten_ops(self._known, snapshot)
            done = [await self._loop.attempt(op.path, partial(self._revoke, op)) for op in ops]
            self._is_settled = all(done)
        return LOOK_SECS

    async def _revoke(self, op: Op) -> bool:
        await self._leadership.fence().commit([op])
        log.warning("what was revoked before the restore is revoked again", path=op.path)
        return True
