"""Two masters that pause anywhere, lose sessions and answers, and never look at a clock, on a model
of ZooKeeper.

The code that changes records is the real one: the decisions, raising the epoch, the fence. The
judge is the oracle of `make chaos`, which knows nothing of that code.
"""

from __future__ import annotations

import contextlib
import types
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Generator, Iterator, Sequence
from itertools import islice
from typing import Any, cast

from chaos.oracle import Committed, judge_transactions, judge_words
from chaos.txnlog import Change, Kind, Transaction
from hypothesis import given, settings
from hypothesis import strategies as st
from property_size import examples
from records_of import bundle, supervisor
from tree_model import Tree as Model

from torrentdist.cluster import paths
from torrentdist.cluster.election.epoch import Displaced, raise_epoch
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.election.term import First, OwnNode, Waits, standing
from torrentdist.cluster.rebalance.group_requests import Refused
from torrentdist.cluster.records.snapshot import ClusterSnapshot, ReadTree, updated
from torrentdist.cluster.session.znode_operations import (
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Op,
    SessionExpired,
    Set,
    Stat,
    TransactionFailed,
)
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.master.bundles.bundle_operations import removal_ops
from torrentdist.master.policies.distribution_orders import DistributionOrder, order_ops
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, MasterId, SupervisorId
from torrentdist.model.records import AssignmentRecord, BundleState, ClusterRecord, decode, encode

BUNDLES = [BundleId(f"b{n}") for n in range(4)]
SUPERVISOR = SupervisorId("s1")
ENDS = (SessionExpired, TorrentdistError, TransactionFailed, Displaced, NoNode)


@types.coroutine
def pause() -> Generator[None, None, None]:
    """Delays a process here for any time."""
    yield


class World:
    """The model's tree, and the transactions committed to it, as in ZooKeeper's own log."""

    def __init__(self) -> None:
        self.tree = Model(lambda session, path: None)
        self.log: list[Transaction] = []
        self.sessions = iter(range(1, 1_000_000))
        for path in (*paths.PARENTS, paths.DISTRIBUTIONS):
            self.tree.ensure(path)
        self.tree.commit(0, (Create(paths.CLUSTER, encode(ClusterRecord(id="c", announce_key="k"))),))
        self.tree.commit(0, (Create(f"{paths.SUPERVISORS}/{SUPERVISOR}", encode(supervisor(SUPERVISOR))),))
        for name in BUNDLES:
            self.tree.commit(0, (Create(paths.bundle(name), encode(bundle(name).record)),))

    def commit(self, session: int, ops: Sequence[Op]) -> list[Any]:
        answer = self.tree.commit(session, tuple(ops))
        if isinstance(answer, Refused):
            raise TransactionFailed(ops, answer.index, answer.reason)
        results = list(cast(Any, answer).results)
        self._note(session, [self._change(op, result) for op, result in zip(ops, results, strict=True)])
        return results

    def expire(self, session: int) -> None:
        own = [path for path, node in self.tree.nodes.items() if node.owner == session]
        self.tree.expire(session)
        self._note(session, [Change(Kind.DELETE, path) for path in own])

    def _note(self, session: int, changes: Sequence[Change]) -> None:
        self.log.append(Transaction(self.tree.zxid, session, float(self.tree.zxid), tuple(changes)))

    def _change(self, op: Op, result: Any) -> Change:
        match op:
            case Create(_, data, ephemeral, _):
                return Change(Kind.CREATE, result, data, ephemeral=ephemeral)
            case Set(path, data, _):
                return Change(Kind.SET, path, data, result.version)
            case Delete(path, _):
                return Change(Kind.DELETE, path)
            case Check(path, _):
                return Change(Kind.CHECK, path, version=self.tree.nodes[path].version)

    def snapshot(self) -> ClusterSnapshot:
        nodes = {path: (node.data, node.stat()) for path, node in self.tree.nodes.items()}
        children = {path: frozenset(self.tree.children(path)) for path in nodes}
        return updated(ClusterSnapshot(), ReadTree(nodes, children), nodes, lambda path, error: None)


class Client:
    """The part of ZooKeeper's facade that a leader's changes need. Requests and answers can be
    delayed.

    Always, as in the real one: a write is sent only in the session in which it was requested.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.session = next(world.sessions)
        self.loses_answers = False

    def expire(self) -> None:
        self.world.expire(self.session)
        self.session = next(self.world.sessions)

    async def _read(self, look: Callable[[], Any]) -> Any:
        await pause()
        found = look()
        await pause()
        return found

    async def commit(self, ops: Sequence[Op]) -> list[Any]:
        session = self.session
        await pause()
        if session != self.session:
            raise SessionExpired
        results = self.world.commit(session, ops)
        await pause()
        if self.loses_answers:
            self.loses_answers = False
            raise TorrentdistError("outcome_unknown", detail="the answer was lost")
        return results

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False) -> str:
        try:
            return cast(str, (await self.commit([Create(path, data, ephemeral, sequential)]))[0])
        except TransactionFailed as failed:
            raise failed.reason if isinstance(failed.reason, NodeExists) else failed from None

    async def ensure(self, path: str) -> None:
        await self._read(lambda: self.world.tree.ensure(path))

    async def get(self, path: str) -> tuple[bytes, Stat] | None:
        node = await self._read(lambda: self.world.tree.nodes.get(path))
        return None if node is None else (node.data, node.stat())

    async def exists(self, path: str) -> Stat | None:
        found = await self.get(path)
        return None if found is None else found[1]

    async def children(self, path: str) -> Collection[str]:
        return cast(Collection[str], await self._read(lambda: self.world.tree.children(path)))

    async def snapshot(self) -> ClusterSnapshot:
        return cast(ClusterSnapshot, await self._read(self.world.snapshot))


class Master:
    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.client = Client(world)
        self.said: list[Committed] = []
        self.ended: Counter[str] = Counter()
        self._work: Coroutine[None, None, None] = self._live()
        self.go()

    def go(self) -> None:
        """Continues to the next place where it may be delayed."""
        self._work.send(None)

    def close(self) -> None:
        self._work.close()

    async def _live(self) -> None:
        turns = self._turns()
        while True:
            try:
                await self._stand(turns)
            except ENDS as exc:
                self.ended[exc.code if isinstance(exc, TorrentdistError) else type(exc).__name__] += 1
            await pause()

    def _turns(self) -> Iterator[tuple[BundleId, bool]]:
        while True:
            for name in BUNDLES:
                yield name, True
            yield from ((name, False) for name in BUNDLES[:1])

    async def _stand(self, turns: Iterator[tuple[BundleId, bool]]) -> None:
        """Goes from the queue to the end of the term. It never concludes by itself that its lease
        is over."""
        session = self.client.session
        path = await self.client.create(
            f"{paths.ELECTION}/{self.name}-", self.name.encode(), ephemeral=True, sequential=True
        )
        own = OwnNode(paths.name(path), session)
        zk = cast(ZooKeeper, self.client)
        while True:
            match standing(await self.client.children(paths.ELECTION), own, self.client.session):
                case First():
                    break
                case Waits():
                    await pause()
                case _:
                    return
        term = await raise_epoch(zk, own, MasterId(self.name))
        fence = Fence(zk, term, lambda: True)
        while True:
            snapshot = await self.client.snapshot()
            for name, spread in islice(turns, 2):  # two requests at once, decided on the same snapshot
                await self._change(fence, snapshot, name, spread)

    async def _change(self, fence: Fence, snapshot: ClusterSnapshot, name: BundleId, spread: bool) -> None:
        try:
            order = DistributionOrder(name, [SUPERVISOR])
            ops = order_ops(snapshot, order, 1.0) if spread else removal_ops(snapshot, name)
        except TorrentdistError:
            return  # it is already removed
        with contextlib.suppress(TransactionFailed):  # another master was faster
            await fence.commit(ops)
            if ops:
                self.said.append(Committed(self.name, fence.epoch, tuple(op.path for op in ops)))


def play(moves: Sequence[tuple[int, str, int]]) -> tuple[World, list[Master]]:
    world = World()
    masters = [Master(world, "m1"), Master(world, "m2")]
    for who, what, times in moves:
        master = masters[who]
        match what:
            case "expire":
                master.client.expire()
            case "lose":
                master.client.loses_answers = True
            case _:
                for _ in range(times):
                    master.go()
    for master in masters:
        master.close()
    return world, masters


MOVES = st.lists(
    st.tuples(st.integers(0, 1), st.sampled_from(["go", "go", "go", "go", "expire", "lose"]), st.integers(1, 25)),
    max_size=60,
)


@settings(max_examples=examples(150), deadline=None)
@given(MOVES)
def test_no_pause_expiry_or_lost_answer_lets_the_deposed_change_anything(
    moves: list[tuple[int, str, int]],
) -> None:
    """If this fails, a leader that wakes up after its time changes what its successor is
    responsible for."""
    world, masters = play(moves)
    judgement = judge_transactions(world.log)
    said = [word for master in masters for word in master.said]

    assert [] == judgement.findings
    assert [] == judge_words(judgement.reigns, said)
    assert sorted({reign.epoch for reign in judgement.reigns}) == list(range(1, len(judgement.reigns) + 1))


@settings(max_examples=examples(150), deadline=None)
@given(MOVES)
def test_no_change_is_lost_under_another_one(moves: list[tuple[int, str, int]]) -> None:
    """If this fails, a decision on an old snapshot overwrites later changes."""
    world, _ = play(moves)
    generations = [
        decode(change.data, AssignmentRecord, path=change.path).generation
        for txn in world.log
        for change in txn.changes
        if change.path == paths.assignment(SUPERVISOR) and change.kind in (Kind.CREATE, Kind.SET)
    ]
    removed = {name for name, entry in world.snapshot().bundles.items() if entry.record.state is BundleState.REMOVED}
    assigned = world.snapshot().assignments.get(SUPERVISOR)

    assert list(range(1, len(generations) + 1)) == generations
    assert not removed & set(assigned.record.bundles if assigned else ())


def test_a_leader_that_wakes_up_in_the_middle_of_a_commit_is_told_that_it_leads_no_more() -> None:
    """If this failed, the two tests above could pass because no leader ever gets as far as a
    commit."""
    led = [(0, "go", 21), (1, "go", 9), (0, "expire", 1), (1, "go", 30), (0, "go", 40), (1, "go", 30)]
    world, (first, second) = play(led)
    reigns = judge_transactions(world.log).reigns

    assert ["m1", "m2"] == [reign.master for reign in reigns]
    assert all(reign.acts for reign in reigns)
    assert first.ended.keys() & {"leadership_lost", "SessionExpired"}
    assert second.said
