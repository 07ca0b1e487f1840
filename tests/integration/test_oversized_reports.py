"""A leader that meets reports of any size and damaged records, on a real ZooKeeper: none of them
holds up other jobs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from masters_in_process import Enter, InProcess
from records_of import job, supervisor
from zookeeper_fixtures import eventually, eventually_async

from torrentdist.cluster import paths
from torrentdist.cluster.session.znode_operations import MAX_REQUEST_BYTES
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.jobs.job_loop import JobLoop
from torrentdist.master.jobs.story_keeper import MOST_BYTES, Stories
from torrentdist.master.master_session import MasterSession
from torrentdist.master.reads.zookeeper_reachability import ZooKeeperReachability
from torrentdist.model.configuration.config import Config, JobsConfig
from torrentdist.model.ids import JobId, MasterId, SupervisorId
from torrentdist.model.jobs.report_bounds import MOST_DETAIL
from torrentdist.model.records import AssignmentRecord, JobRecord, JobStatus, WorkerAssignment, encode
from torrentdist.model.wire.job_messages import HeartbeatBody, WorkerReport, WorkerState

pytestmark = pytest.mark.anyio

HOST = SupervisorId("h1")
LONG = "x" * 1_000_000


def session_of(master: InProcess) -> MasterSession:
    return MasterSession(MasterId("m1"), master.zk, master.mirror)


def heartbeats_of(master: InProcess) -> Heartbeats:
    return Heartbeats(session_of(master), master.leadership, ZooKeeperReachability(master.zk), 30.0)


async def put(master: InProcess, record: JobRecord) -> None:
    await master.zk.create(paths.job(record.id), encode(record))


def in_full(record: JobRecord) -> JobRecord:
    """Returns a job whose record can be created, and not be written together with the leader's
    guards."""
    room = MAX_REQUEST_BYTES - 600 - len(paths.job(record.id)) - len(encode(record))
    return msgspec.structs.replace(record, reason="x" * room)


@contextlib.asynccontextmanager
async def running(master: InProcess, keep_secs: float = 600.0) -> AsyncIterator[JobLoop]:
    reachability = ZooKeeperReachability(master.zk)
    loop = JobLoop(
        session_of(master),
        master.leadership,
        reachability,
        heartbeats_of(master),
        Stories(session_of(master), lambda: True),
        Config(jobs=JobsConfig(keep_secs=keep_secs)),
    )
    task = asyncio.create_task(loop.run())
    try:
        yield loop
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


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


async def test_a_job_whose_record_is_full_holds_up_no_other(enter: Enter, capfd: pytest.CaptureFixture[str]) -> None:
    """If this fails, no other job of the cluster starts, ends or gets a place."""
    master = await enter("m1")
    await master.leads()
    await put(master, in_full(job("a-full", ["code"], JobStatus.SUBMITTED).record))
    await put(master, job("b-next", ["code"], JobStatus.SUBMITTED).record)
    await put(master, msgspec.structs.replace(job("c-runs", ["code"]).record, workers=1))
    host = msgspec.structs.replace(supervisor(HOST), slots=4)
    await master.zk.create(paths.supervisor(HOST), encode(host))
    await eventually(lambda: master.zk.server_now() is not None)
    await master.mirror.sync(5.0)

    def statuses() -> list[JobStatus]:
        return [entry.record.status for _, entry in sorted(master.mirror.snapshot.jobs.items())]

    async with running(master):
        await eventually(lambda: JobStatus.REPLICATING in statuses() and HOST in master.mirror.snapshot.assignments)
        await asyncio.sleep(1.5)
    complaints = capfd.readouterr().err.count("a record waits")

    assert [JobStatus.SUBMITTED, JobStatus.REPLICATING, JobStatus.ACTIVE] == statuses()
    assert 1 == complaints


async def test_what_one_record_does_wrong_holds_up_no_other(enter: Enter) -> None:
    """If this fails, one damaged assignment, story or left-over znode stops all jobs of the
    cluster."""
    master = await enter("m1")
    await master.leads()
    await eventually(lambda: master.zk.server_now() is not None)
    await master.zk.create(paths.assignment(SupervisorId("a-damaged")), b"no record")
    for name in ("a-damaged", HOST):
        await master.zk.create(
            paths.supervisor(SupervisorId(name)), encode(msgspec.structs.replace(supervisor(name), slots=4))
        )
    for name in ("a-old", "b-old"):
        await put(master, job(name, ["code"], JobStatus.FINISHED).record)
    await master.zk.create(f"{paths.job(JobId('a-old'))}/unknown", b"")
    await put(master, msgspec.structs.replace(job("a-runs", ["code"]).record, workers=2))
    await master.zk.create(paths.job_story(JobId("a-runs")), b"no record")
    await put(master, msgspec.structs.replace(job("b-runs", ["code"]).record, workers=2))
    await master.mirror.sync(5.0)

    def places() -> set[tuple[str, int]]:
        entry = master.mirror.snapshot.assignments.get(HOST)
        return set() if entry is None else {(worker.job, worker.worker) for worker in entry.record.workers}

    async with running(master, keep_secs=0.1):
        await eventually(lambda: len(places()) == 4 and JobId("b-old") not in master.mirror.snapshot.jobs)
        await put(master, job("c-next", ["code"], JobStatus.SUBMITTED).record)
        await eventually(lambda: is_replicating(master, "c-next"))
        await eventually_async(lambda: has_story(master, "b-runs"))

    assert JobId("a-old") in master.mirror.snapshot.jobs


def is_replicating(master: InProcess, name: str) -> bool:
    entry = master.mirror.snapshot.jobs.get(JobId(name))
    return entry is not None and entry.record.status is JobStatus.REPLICATING


async def has_story(master: InProcess, name: str) -> bool:
    return await master.zk.exists(paths.job_story(JobId(name))) is not None


async def test_a_story_that_is_too_large_is_shortened(enter: Enter) -> None:
    """If this fails, one story keeps the leader from writing any, and from every change of a
    job."""
    master = await enter("m1")
    await master.leads()
    await eventually(lambda: master.zk.server_now() is not None)
    names = [JobId("a-full"), JobId("b-next")]
    for name in names:
        await put(master, job(name, ["code"]).record)
    place = AssignmentRecord(generation=1, workers=(WorkerAssignment(job=names[0], worker=0, active=True, of=1),))
    await master.zk.create(paths.assignment(HOST), encode(place))
    stories = Stories(session_of(master), lambda: False)
    said = WorkerReport(job=names[0], worker=0, state=WorkerState.ENDED, ended_at=5.0, exit_code=1, detail=LONG)
    wait = await stories.tell(await master.mirror.sync(5.0), {(names[0], 0): said}, master.leadership.fence())
    full, following = [await stories.events(name) or [] for name in names]
    found = await master.zk.get(paths.job_story(names[0]))

    assert float("inf") == wait
    assert ["exit code 1, xx"] == [event.detail[:15] for event in full if event.event.value == "exited"]
    assert following
    assert found is not None
    assert len(found[0]) < MOST_BYTES


async def test_jobs_go_on_while_a_story_cannot_be_read(enter: Enter) -> None:
    """If this fails, one damaged story stops every job."""
    master = await enter("m1")
    await master.leads()
    await put(master, job("a-damaged", ["code"], JobStatus.SUBMITTED).record)
    await master.zk.create(paths.job_story(JobId("a-damaged")), b"{")
    await eventually(lambda: master.zk.server_now() is not None)
    await master.mirror.sync(5.0)
    async with running(master):
        await eventually(lambda: master.mirror.snapshot.jobs[JobId("a-damaged")].record.status is JobStatus.REPLICATING)
