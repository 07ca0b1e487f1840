"""Keeps this host registered in the cluster, and hands on what its assignment says.

Always: a missing assignment drops nothing, because a wiped tree looks the same. Before this host
registers in another cluster, no worker of the previous one runs here.
Never: decide what the assignment's bundles and workers need; their rooms do.
"""

from torrentdist.cluster.records.registration import OtherCluster, Registration
from torrentdist.cluster.session.arrival import enter
from torrentdist.cluster.session.znode_operations import SessionState
from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.http.asking_in_turn import ask_leader
from torrentdist.launcher.run.run_lease import NEVER
from torrentdist.model.access.host_messages import PlaceBody, PlaceView
from torrentdist.model.errors import NO_CLUSTER, TorrentdistError
from torrentdist.model.records import AssignmentRecord, SupervisorRecord
from torrentdist.supervisor.bundles.keeper import Keeper
from torrentdist.supervisor.jobs.assignment_loop import AssignmentLoop
from torrentdist.supervisor.place.znode_watch import LOOK_SECS, ZnodeWatch


class ClusterPlace:
    def __init__(self, host: HostDaemon, watch: ZnodeWatch, keeper: Keeper, assigning: AssignmentLoop) -> None:
        self._host = host
        self._watch = watch
        self._keeper = keeper
        self._assigning = assigning
        self._registration: Registration | None = None

    async def join(self, record: SupervisorRecord) -> None:
        """Joins the cluster in ZooKeeper, and any cluster that an operator puts in its place,
        through every outage."""
        await enter(self._host.zookeeper)
        self._host.background.repeat("znode watch", self._watch.run)
        while True:
            cluster = await self._watch.founded()
            await self._assigning.bind_to_cluster(cluster)
            await self._take_part(record, cluster)

    async def leave(self, *, keep_record: bool) -> None:
        """Ends the registration. `keep_record`: workers run on, and the next process takes over."""
        if self._registration is not None:
            await (self._registration.abandon() if keep_record else self._registration.close())
        await self._watch.close()

    def masters_answering(self) -> int:
        return self._host.agent.picture.answered

    def failing(self) -> dict[str, str]:
        """Returns what this host lacks to take part, with the reasons."""
        failing = {}
        if self._host.zookeeper.state is not SessionState.CONNECTED:
            failing["zookeeper"] = f"the session is {self._host.zookeeper.state}"
        if self._watch.lacks_cluster():
            failing["cluster"] = NO_CLUSTER
        if self.masters_answering() == 0:
            failing["masters"] = "no master answers"
        return failing

    async def _take_part(self, record: SupervisorRecord, cluster: str) -> None:
        """Stays registered and follows the assignment until ZooKeeper holds a different cluster."""
        registration = self._registration = Registration(
            self._host.zookeeper, record, look_secs=LOOK_SECS, cluster=cluster, ask_place=self._ask_place
        )
        registration.on_change.append(lambda registered: None if registered else self._watch.recheck_all())
        try:
            await registration.start()
            await self._follow_assignment(registration, cluster)
        except OtherCluster:
            self._watch.recheck_all()
        await registration.close()

    async def _ask_place(self) -> None:
        """Has the leader make this host's place in ZooKeeper."""
        path = f"/v1/hosts/{self._host.identity.id}/place"
        answer = await ask_leader(self._host.http, "", self._watch.master_urls(), path, PlaceBody(), PlaceView)
        if answer is None:
            raise TorrentdistError("zookeeper_unavailable", detail="no leader makes a place for this host yet")

    async def _follow_assignment(self, registration: Registration, cluster: str) -> None:
        before: AssignmentRecord | None = None
        while self._watch.cluster() in (cluster, None):
            version, session, assignment = self._watch.version, self._watch.read_in(), self._watch.assignment()
            await self._keeper.hear_removals(self._watch.removals())
            self._keeper.knows_assignment |= self._watch.known_at != NEVER
            if assignment is not None:
                told = frozenset(assignment.bundles)
                # Nothing goes yet: a bundle may turn from an order into a worker's need.
                self._keeper.assign(told | frozenset(before.bundles if before else ()), assignment.terms)
                await self._assigning.assign(assignment, session)
                self._keeper.assign(told, assignment.terms)
            # Masters' registrations are not watched: they may be gone too.
            if assignment is None and before is not None:
                self._watch.recheck_all()
                registration.look_again()
            before = assignment
            await self._watch.changed(version, session)
