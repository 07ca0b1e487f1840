"""The changes of retention rules, what a rule means now, and the removal of what the rules let go.

Always: the removal is decided on records that show every earlier change, and again after each
batch.
Never: decide what goes. retention_rules.py does.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from torrentdist.cluster import paths
from torrentdist.cluster.records.record_index import RecordIndex
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Create, Delete, Op, Set
from torrentdist.log import get_logger
from torrentdist.master.bundles.bundle_operations import BATCH, removal_ops
from torrentdist.master.changes.answered_requests import Mutation
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.changes.record_loop import CONCERNS_ALL, RecordLoop
from torrentdist.master.policies.retention_rules import Retained, doomed, retained
from torrentdist.model.backoff import kind_of
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.policies.policy_messages import RetentionBody, RetentionView
from torrentdist.model.policies.retention_record import RetentionRecord
from torrentdist.model.records import encode
from torrentdist.model.wire.view import view_of
from torrentdist.security.authorization import checked_pattern

log = get_logger()

MOST_RULES = 200
MOST_KEPT = 1_000_000
LONGEST_SECS = 100 * 365 * 86400.0


class RetentionOperations:
    """`now` returns the time by ZooKeeper's clock; None while it is not known."""

    def __init__(self, changes: LeaderChanges, now: Callable[[], float | None]) -> None:
        self._changes = changes
        self._now = now

    async def put(self, mutation: Mutation | None, body: RetentionBody, by: str) -> bytes:
        record = new_rule(body, by)
        return await self._changes.make_alone(
            mutation,
            lambda s: rule_ops(s, record),
            lambda s: rule_view(s, record, self._now()),
        )

    async def remove(self, mutation: Mutation | None, pattern: str) -> bytes:
        """Ends a rule. Bundles that it would have removed stay."""
        before: list[RetentionView] = []

        def decide(snapshot: ClusterSnapshot) -> Sequence[Op]:
            entry = snapshot.retention.get(paths.name(paths.retention(pattern)))
            if entry is None:
                raise TorrentdistError("not_found", what=f"a retention rule for {pattern!r}")
            before[:] = [rule_view(snapshot, entry.record, self._now())]
            return [Delete(paths.retention(pattern), entry.version)]

        return await self._changes.make_alone(mutation, decide, lambda _: before[0], shorten=RetentionView.shortened)

    async def remove_doomed(self, seen: ClusterSnapshot, turns: RecordLoop) -> None:
        """Removes what the rules let go, as the leader: all at once, or one by one if one of them
        fails. Looks first, beside the event loop, whether there is anything."""
        time = self._now()
        if time is None or not (going := await asyncio.to_thread(doomed, seen, time)):
            return
        try:
            await self._remove(going)
        except Exception as error:
            if kind_of(error) in CONCERNS_ALL:
                raise
            for bundle in going:
                await turns.attempt(paths.bundle(bundle), partial(self._remove, [bundle]))

    async def _remove(self, among: Collection[BundleId]) -> None:
        index = RecordIndex()

        def decide(snapshot: ClusterSnapshot) -> Sequence[Op]:
            index.follow(snapshot)
            now = self._now()
            going = [] if now is None else [id_ for id_ in doomed(snapshot, now, index) if id_ in among]
            if going:
                log.info("retention removes bundles", bundles=going[:20], count=len(going))
            return [op for id_ in going for op in removal_ops(snapshot, id_, index)]

        await self._changes.make_alone(None, decide, lambda _: None, batch=BATCH)


def new_rule(body: RetentionBody, by: str) -> RetentionRecord:
    """Returns the rule that a request asks for. Raises an error if the request is wrong."""
    pattern = checked_pattern(body.pattern)
    if not 1 <= body.keep <= MOST_KEPT:
        raise TorrentdistError("invalid_request", detail="a retention rule keeps at least 1 bundle")
    if not 0 <= body.for_secs <= LONGEST_SECS:
        raise TorrentdistError("invalid_request", detail="a retention rule keeps bundles for 0 s to 100 years")
    return RetentionRecord(pattern=pattern, keep=body.keep, for_secs=body.for_secs, created_by=by)


def rule_ops(snapshot: ClusterSnapshot, record: RetentionRecord) -> Sequence[Op]:
    path = paths.retention(record.pattern)
    known = snapshot.retention.get(paths.name(path))
    if known is None and len(snapshot.retention) >= MOST_RULES:
        raise TorrentdistError(
            "too_large", what="the list of retention rules", size=len(snapshot.retention) + 1, limit=MOST_RULES
        )
    if known is not None and known.record == record:
        return []
    data = encode(record)
    return [Create(path, data) if known is None else Set(path, data, known.version)]


def rule_view(snapshot: ClusterSnapshot, record: RetentionRecord, now: float | None) -> RetentionView:
    """Returns what a rule means beside all others. While ZooKeeper's clock is not known, nothing
    goes."""
    return _views(snapshot, [record], now)[0]


def rule_views(snapshot: ClusterSnapshot, now: float | None) -> list[RetentionView]:
    """Returns what each rule means, in the order of the patterns."""
    rules = (entry.record for entry in snapshot.retention.values())
    return _views(snapshot, sorted(rules, key=lambda rule: rule.pattern), now)


def _views(snapshot: ClusterSnapshot, shown: Iterable[RetentionRecord], now: float | None) -> list[RetentionView]:
    named = {paths.name(paths.retention(record.pattern)): record for record in shown}
    rules = {**{name: entry.record for name, entry in snapshot.retention.items()}, **named}
    found = retained(snapshot, rules, 0.0 if now is None else now)
    return [_view(record, found[name], now) for name, record in named.items()]


def _view(record: RetentionRecord, found: Retained, now: float | None) -> RetentionView:
    return view_of(
        RetentionView,
        record,
        bundles=len(found.goes) + len(found.stays),
        goes={} if now is None else dict(found.goes),
        stays={id_: list(why) for id_, why in found.stays.items()},
    )
