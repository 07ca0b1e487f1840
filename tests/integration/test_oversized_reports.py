"""A leader that hears reports of any size, on a real ZooKeeper: none holds up other jobs."""

from __future__ import annotations

import pytest
from masters_in_process import Enter, InProcess

from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.master_session import MasterSession
from torrentdist.master.reads.zookeeper_reachability import ZooKeeperReachability
from torrentdist.model.ids import JobId, MasterId, SupervisorId
from torrentdist.model.jobs.report_bounds import MOST_DETAIL
from torrentdist.model.wire.job_messages import HeartbeatBody, WorkerReport, WorkerState

pytestmark = pytest.mark.anyio

HOST = SupervisorId("h1")
LONG = "x" * 1_000_000


def heartbeats_of(master: InProcess) -> Heartbeats:
    session = MasterSession(MasterId("m1"), master.zk, master.mirror)
    return Heartbeats(session, master.leadership, ZooKeeperReachability(master.zk), 30.0)


async def test_a_leader_keeps_only_the_beginning_of_a_report(enter: Enter) -> None:
    """If this fails, one host's certificate is enough to stop the jobs of the whole cluster."""
    master = await enter("m1")
    await master.leads()
    heartbeats = heartbeats_of(master)
    report = WorkerReport(
        job=JobId("etl-00000001"), worker=0, state=WorkerState.ENDED, detail=LONG, application=LONG, ui=LONG
    )
    heartbeats.hear(HeartbeatBody(supervisor=HOST, generation=1, workers=[report]))
    kept = heartbeats.recent()[HOST].workers[0]

    assert (MOST_DETAIL, "", "") == (len(kept.detail), kept.application, kept.ui)
