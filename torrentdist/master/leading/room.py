"""The leader's room of a master: its place in the election, the changes of records, handing over.

Changes are part of it because only a leader makes them.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from torrentdist.host.process.room import Loop, Room, When
from torrentdist.master.changes.answered_requests import Requests, RequestTrimmer
from torrentdist.master.changes.commit import LeaderChanges
from torrentdist.master.leading.leader_rounds import Copies, LeaderRounds, Upkeep
from torrentdist.master.leading.leader_transfer import LeadershipApi, LeaderTransfer, successor
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.leading.lost_bundles import LostBundles
from torrentdist.master.leading.own_role import own_role
from torrentdist.master.leading.roles import Roles
from torrentdist.master.leading.schema_upgrade import Upgrade
from torrentdist.master.master_core import MasterCore
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.model.ids import Digest

GOODBYE_SECS: Final = 3.0


class LeadingRoom(Room, frozen=True, kw_only=True):
    core: MasterCore
    leadership: Leadership
    changes: LeaderChanges
    roles: Roles
    completing: list[Callable[[Digest], bool]]
    """Each says whether somebody is about to complete an upload."""

    async def hand_over(self) -> None:
        """Hands the leadership of a stopping leader to a standby that can lead at once."""
        if self.leadership.is_leader():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_SECS):
                    heir = successor(self.core.records.snapshot().election, await self.roles.all())
                    await self.leadership.leave("stopped", heir)

    async def say_goodbye(self) -> None:
        """Tells the others at once, so that they need not wait for the session to end. Without
        ZooKeeper it gives up after GOODBYE_SECS."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECS):
                await self.leadership.leave("stopped")
                await self.core.records.save()
                await self.core.registration.close()


def leading_room(core: MasterCore, swarms: Swarms) -> LeadingRoom:
    config, session, tell = core.config, core.session, core.host.runtime.events.emit
    completing: list[Callable[[Digest], bool]] = [swarms.may_complete]
    lost = LostBundles(session, swarms.seen_elsewhere, config.replication.lost_secs)
    copies = Copies(
        published=core.host.runtime.store.published_digests,
        may_complete=lambda digest: any(may_complete(digest) for may_complete in completing),
        lost=lost,
    )
    upkeep = Upkeep(
        RequestTrimmer(session.zookeeper, config.requests.keep_secs),
        Upgrade(session.zookeeper, config.master.upgrade_after_secs),
    )
    rounds = LeaderRounds(session, config.replication, copies, upkeep, tell)
    leadership = Leadership(session, config.replication, copies, rounds, tell)
    changes = LeaderChanges(session.mirror, leadership, Requests(session.zookeeper), core.metrics)
    roles = Roles(core.host.http, core.records.snapshot, lambda: own_role(core, leadership))
    transfer = LeaderTransfer(session.me, leadership, session.mirror, roles, changes)
    return LeadingRoom(
        core=core,
        leadership=leadership,
        changes=changes,
        roles=roles,
        completing=completing,
        routers=[LeadershipApi(leadership, roles, core.records, transfer)],
        loops=[
            Loop("elections", leadership.elections.run),
            Loop("vacancies", leadership.elections.watch),
            Loop("absences", lost.watch, When.MIRRORED),
        ],
    )
