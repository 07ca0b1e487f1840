"""The stories of jobs as the leader keeps them, on a real ZooKeeper."""

from __future__ import annotations

import pytest
from masters_in_process import Enter, InProcess
from records_of import job
from zookeeper_fixtures import eventually

from torrentdist.cluster import paths
from torrentdist.master.jobs.story_keeper import MOST_WRITES, Stories
from torrentdist.master.master_session import MasterSession
from torrentdist.model.ids import JobId, MasterId
from torrentdist.model.records import JobEventKind, JobStatus, encode

pytestmark = pytest.mark.anyio

MANY = MOST_WRITES + 5


async def put(master: InProcess, name: str, status: JobStatus) -> None:
    path, data = paths.job(JobId(name)), encode(job(name, ["code"], status).record)
    if await master.zk.exists(path) is None:
        await master.zk.create(path, data)
    else:
        await master.zk.set(path, data)


async def told(stories: Stories, name: str) -> list[JobEventKind]:
    return [event.event for event in await stories.events(JobId(name)) or ()]


async def stories_of_many(enter: Enter) -> tuple[InProcess, Stories, list[str]]:
    """A leader whose jobs have no story yet."""
    master = await enter("m1")
    await master.leads()
    await eventually(lambda: master.zk.server_now() is not None)
    names = [f"job-{number}" for number in range(MANY)]
    for name in names:
        await put(master, name, JobStatus.INACTIVE)
    session = MasterSession(MasterId("m1"), master.zk, master.mirror)
    return master, Stories(session, leads=lambda: False), names  # a reader asks ZooKeeper, not the writer's memory


async def test_all_stories_are_written_and_only_what_is_new_is_told(enter: Enter) -> None:
    """If this fails, a leader with many jobs tells something twice, or not at all."""
    master, stories, names = await stories_of_many(enter)
    first = await stories.tell(await master.mirror.sync(5.0), {}, master.leadership.fence())
    versions = [await master.version(paths.job_story(JobId(name))) for name in names]
    await put(master, names[-1], JobStatus.ACTIVE)
    seen = await master.mirror.sync(5.0)
    waits: list[float] = []
    while not waits or waits[-1] < 1e9:
        waits.append(await stories.tell(seen, {}, master.leadership.fence()))

    assert float("inf") == first
    assert max(waits[:-1]) <= 1.0, "a story waits for longer than a second"
    assert {0} == set(versions)
    assert [JobEventKind.SUBMITTED, JobEventKind.REPLICATED, JobEventKind.DEACTIVATED] == await told(stories, names[0])
    assert JobEventKind.ACTIVATED is (await told(stories, names[-1]))[-1]
    assert [0, 1] == [await master.version(paths.job_story(JobId(name))) for name in (names[0], names[-1])]


async def test_a_job_that_is_gone_keeps_no_other_story_from_being_written(enter: Enter) -> None:
    """If this fails, one job that is removed while stories are written silences all others."""
    master, stories, names = await stories_of_many(enter)
    seen = await master.mirror.sync(5.0)
    await master.zk.delete(paths.job(JobId(names[3])))
    left = await stories.tell(seen, {}, master.leadership.fence())
    written = [name for name in names if await master.zk.exists(paths.job_story(JobId(name))) is not None]
    again = await stories.tell(await master.mirror.sync(5.0), {}, master.leadership.fence())

    assert 1.0 == left
    assert [name for name in names if name != names[3]] == written
    assert float("inf") == again


async def test_a_leader_that_was_away_reads_what_another_one_told(enter: Enter) -> None:
    """A5: it would write over what was told meanwhile."""
    master, stories, names = await stories_of_many(enter)
    await stories.tell(await master.mirror.sync(5.0), {}, master.leadership.fence())
    await master.retires()
    heir = await enter("m2")
    await heir.leads()
    await eventually(lambda: heir.zk.server_now() is not None)
    await put(heir, names[0], JobStatus.ACTIVE)
    others = Stories(MasterSession(MasterId("m2"), heir.zk, heir.mirror), leads=lambda: False)
    await others.tell(await heir.mirror.sync(5.0), {}, heir.leadership.fence())
    await put(heir, names[0], JobStatus.KILLED)
    seen = await heir.mirror.sync(5.0)
    while await stories.tell(seen, {}, heir.leadership.fence()) < 1e9:
        pass
    kinds = await told(stories, names[0])

    assert [JobEventKind.ACTIVATED, JobEventKind.KILLED] == kinds[-2:]
