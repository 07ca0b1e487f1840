"""Whether a master sees ZooKeeper: what isolated hosts run on by, and what a leader may conclude afterwards."""

from __future__ import annotations

import asyncio

import pytest
from zookeeper_fixtures import Connect, TcpProxy, eventually, eventually_async

from torrentdist.cluster import paths
from torrentdist.cluster.operations import SessionState
from torrentdist.master.sight import Sight

pytestmark = pytest.mark.anyio


@pytest.mark.case("D10")
async def test_a_server_that_holds_its_answers_back_is_not_seen(connect: Connect, proxy: TcpProxy) -> None:
    """If this fails, a frozen ZooKeeper stops every job, or a leader moves what others rightly let run on."""
    zk = await connect(servers=[proxy.address])
    sight = Sight(zk)
    await zk.ensure(paths.CLUSTER)
    seen = await sight.sees(5.0)
    await eventually(lambda: sight.seen_for() > 1.0)
    proxy.hold_answers()
    answers = await asyncio.gather(*(sight.sees(0.2) for _ in range(20)))
    state, after = zk.state, sight.seen_for()
    proxy.mend()

    assert seen
    assert not any(answers)
    assert SessionState.CONNECTED is state, "the connection itself was lost: the test shows nothing"
    assert after < 1.0, "what was seen before such an answer still counts"

    async def again() -> bool:
        return await sight.sees(1.0)

    await eventually_async(again)
