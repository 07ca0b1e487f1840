"""Makes the tables of the leaders' model from the product's own functions: where a master stands in
the queue, how long a lease lasts, and what the fence and the raise of the epoch check.

Always: the functions that run on masters are asked. Nothing of them is written down again here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from torrentdist.cluster import paths
from torrentdist.cluster.election.epoch import raise_epoch
from torrentdist.cluster.election.fence import Fence
from torrentdist.cluster.election.term import First, Ghost, MustQueue, OwnNode, Term, Waits, lease_end, standing
from torrentdist.cluster.session.znode_operations import Check, Op, Set, Stat
from torrentdist.model.ids import MasterId

STANDINGS = (MustQueue, Ghost, Waits, First)
NAMES = ("MUST_QUEUE", "GHOST", "WAITS", "FIRST")
STEPS = 3
"""A session's timeout, in the steps of the model."""
EPOCH, SESSION = 7, 1
PLACE = paths.election_node("x-0000000001")


class Recorder:
    """Keeps the transaction that it is given."""

    def __init__(self) -> None:
        self.ops: list[Op] = []

    async def ensure(self, path: str) -> None:
        pass

    async def get(self, path: str) -> tuple[bytes, Stat]:
        return b"", Stat(EPOCH, 0, 0.0, 1, 1)

    async def exists(self, path: str) -> None:
        return None

    async def commit(self, ops: Sequence[Op]) -> list[Stat]:
        self.ops = list(ops)
        return [Stat(EPOCH + 1, 0, 0.0, 1, 1)] * len(ops)


def tables() -> str:
    """Returns the text of leaders.inc."""
    fence, office = asyncio.run(_fence()), asyncio.run(_office())
    checks = {
        "FENCE_EPOCH": Check(paths.EPOCH, EPOCH) in fence,
        "FENCE_PLACE": Check(PLACE) in fence,
        "RAISE_EPOCH": any(isinstance(op, Set) and (op.path, op.version) == (paths.EPOCH, EPOCH) for op in office),
        "RAISE_PLACE": Check(PLACE) in office,
    }
    named = [f"#define {name} {number}" for number, name in enumerate(NAMES)]
    named += [f"#define {name} {int(there)}" for name, there in checks.items()]
    acts = [str(int(step < lease_end(0.0, float(STEPS)))) for step in range(STEPS + 1)]
    rows = [("stands", [*_stands()]), ("acts", acts)]
    return "\n".join([*named, *(f"hidden byte {name}[{len(row)}] = {{ {', '.join(row)} }};" for name, row in rows), ""])


def _stands() -> list[str]:
    """Returns where a master stands, for each place in a queue of three, and without one; and each
    time first with a place of an older session."""
    found = []
    for place in range(4):
        names = [f"{'own' if n == place else 'other'}-{n:010}" for n in range(3)]
        for session in (SESSION + 1, SESSION):
            own = OwnNode(f"own-{place:010}", SESSION)
            found.append(NAMES[STANDINGS.index(type(standing(names, own, session)))])
    return found


async def _fence() -> list[Op]:
    zookeeper: Any = Recorder()
    await Fence(zookeeper, Term(EPOCH, PLACE, SESSION), lambda: True).commit([Set("/any", b"")])
    return list(zookeeper.ops)


async def _office() -> list[Op]:
    zookeeper: Any = Recorder()
    await raise_epoch(zookeeper, OwnNode(paths.name(PLACE), SESSION), MasterId("m"))
    return list(zookeeper.ops)
