"""The only way in which a leader, or an elected master that may not lead yet, changes ZooKeeper.

Always: a commit happens in the epoch of the fence and while the master's own election znode exists,
or not at all. After the fence is lost, nothing is sent. Each commit is logged with its epoch, as a
record of which master acted as leader.
"""

from collections.abc import Callable, Sequence

from torrentdist.cluster import paths
from torrentdist.cluster.election.term import Term
from torrentdist.cluster.session.znode_operations import Check, Op, Result, SessionExpired, TransactionFailed
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.log import get_logger
from torrentdist.model.errors import TorrentdistError

log = get_logger()


class Fence:
    def __init__(self, zk: ZooKeeper, term: Term, held: Callable[[], bool], *, word: str = "committed") -> None:
        self._zk = zk
        self._term = term
        self._held = held
        self._word = word

    @property
    def epoch(self) -> int:
        return self._term.epoch

    async def commit(self, ops: Sequence[Op]) -> list[Result]:
        """Commits all of `ops` in this term. Raises `leadership_lost`, or TransactionFailed if an
        operation is refused."""
        if not self._held():
            raise TorrentdistError("leadership_lost")
        guards: list[Op] = [Check(paths.EPOCH, self._term.epoch), Check(self._term.election)]
        try:
            results = await self._zk.commit([*guards, *ops])
        except TransactionFailed as exc:
            if exc.index < len(guards):
                raise TorrentdistError("leadership_lost") from exc
            raise TransactionFailed(ops, exc.index - len(guards), exc.reason) from None
        except SessionExpired as exc:
            raise TorrentdistError("leadership_lost") from exc
        changed = [op.path for op in ops if not isinstance(op, Check)]
        if changed:
            log.info(self._word, epoch=self.epoch, znodes=changed)
        return results[len(guards) :]
