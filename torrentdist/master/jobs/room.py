"""The jobs' room of a master: what jobs need of the others, and what they offer."""

from torrentdist.host.process.room import Loop, Room, When
from torrentdist.master.jobs.heartbeats import Heartbeats
from torrentdist.master.jobs.job_api import JobApi, SupervisorApi
from torrentdist.master.jobs.job_loop import JobLoop
from torrentdist.master.jobs.job_requests import JobRequests
from torrentdist.master.jobs.story_keeper import Stories
from torrentdist.master.leading.room import LeadingRoom
from torrentdist.master.master_core import MasterCore
from torrentdist.master.reads.zookeeper_reachability import ZooKeeperReachability


class JobsRoom(Room, frozen=True, kw_only=True):
    requests: JobRequests
    heartbeats: Heartbeats


def jobs_room(core: MasterCore, leading: LeadingRoom) -> JobsRoom:
    session, leadership, config = core.session, leading.leadership, core.config
    reachability = ZooKeeperReachability(session.zookeeper)
    heartbeats = Heartbeats(session, leadership, reachability, config.jobs.silent_secs)
    stories = Stories(session, leadership.is_leader)
    requests = JobRequests(session, leading.changes, heartbeats, stories, core.host.hand_outs, config.jobs)
    loop = JobLoop(session, leadership, reachability, heartbeats, stories, config)
    return JobsRoom(
        requests=requests,
        heartbeats=heartbeats,
        routers=[
            JobApi(requests, leadership, core.records),
            SupervisorApi(requests, loop, heartbeats, leadership),
        ],
        loops=[Loop("jobs", loop.run, When.REGISTERED)],
    )
