"""The console's room of a master: the pages below /ui/, and the sessions of those who look at them.

A new page is one more router here; a page shows what another room offers through `Shown`.
"""

import asyncio
import contextlib
from collections.abc import Iterable

import msgspec

from torrentdist.host.http.operation import Operation
from torrentdist.host.process.room import Room
from torrentdist.master.access.room import AccessRoom
from torrentdist.master.bundles.room import BundlesRoom
from torrentdist.master.console.console_door import SessionPages
from torrentdist.master.console.console_sight import ConsoleSight
from torrentdist.master.console.forms.access_pages import AccessPages, RetentionPages
from torrentdist.master.console.forms.action_pages import ActionPages
from torrentdist.master.console.host_asking import HostAsking
from torrentdist.master.console.live_feeds import LiveFeeds
from torrentdist.master.console.noted_events import Happenings, NotedEvents
from torrentdist.master.console.pages.bundle_pages import BundlePages
from torrentdist.master.console.pages.distribution_pages import DistributionPages
from torrentdist.master.console.pages.event_pages import EventPages
from torrentdist.master.console.pages.host_pages import HostPages
from torrentdist.master.console.pages.job_pages import JobPages, OutputPages
from torrentdist.master.console.pages.master_pages import MasterPages
from torrentdist.master.console.pages.overview_pages import OverviewPages
from torrentdist.master.console.visits import Sessions, Visits
from torrentdist.master.history.room import HistoryRoom
from torrentdist.master.jobs.room import JobsRoom
from torrentdist.master.leading.room import LeadingRoom
from torrentdist.master.master_core import MasterCore
from torrentdist.master.policies.room_outlook import RoomOutlook
from torrentdist.master.presence.room import PresenceRoom
from torrentdist.master.reads.earlier_content import EarlierContent
from torrentdist.master.swarm.room import SwarmRoom
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authority.issuing_key import IssuingKey
from torrentdist.security.console_session import session_key


class Shown(msgspec.Struct, frozen=True):
    """The rooms that the pages show."""

    leading: LeadingRoom
    swarm: SwarmRoom
    bundles: BundlesRoom
    jobs: JobsRoom
    access: AccessRoom
    history: HistoryRoom
    presence: PresenceRoom


class ConsoleRoom(Room, frozen=True, kw_only=True):
    sessions: Sessions


async def console_room(core: MasterCore, shown: Shown, api: Iterable[Operation]) -> ConsoleRoom:
    """`api`: the operations that the pages' forms stand for."""
    host, records, me = core.host, core.records, core.session.me
    leadership, jobs, history = shown.leading.leadership, shown.jobs.requests, shown.history.history
    sessions = Sessions(await _session_key(host.guard.job_key, shown.access.key), records, host.guard.token)
    visits = Visits(me, records, leadership, sessions)
    sight = ConsoleSight(shown.presence.sight, leadership, shown.jobs.heartbeats, shown.swarm.swarms)
    feeds, asking = LiveFeeds(core.metrics, sight.state), HostAsking(host.http, records)
    noted = NotedEvents(me, core.now)
    host.runtime.events.subscribe(noted.hear)
    happenings = Happenings(sight, noted, shown.access.trail, history, asking)
    earlier = EarlierContent(host.runtime.store, shown.bundles.metafiles, shown.bundles.recipes)
    room = RoomOutlook(records)
    return ConsoleRoom(
        sessions=sessions,
        routers=[
            SessionPages(sessions, host.guard.tls is not None),
            OverviewPages(visits, sight, feeds, happenings),
            EventPages(visits, happenings),
            BundlePages(visits, sight, feeds, history, earlier, room),
            DistributionPages(visits, feeds, history),
            HostPages(visits, sight, asking, room),
            MasterPages(visits, sight, shown.leading.roles, room),
            JobPages(visits, jobs, records),
            OutputPages(visits, jobs, records, asking, feeds),
            RetentionPages(visits, sight),
            AccessPages(visits, sight),
            ActionPages(visits, sight, api),
        ],
    )


async def _session_key(job_key: bytes, key: IssuingKey) -> bytes:
    """Returns the key of the sessions. Masters that share a secret accept each other's."""
    ca_key = b""
    if not job_key:
        with contextlib.suppress(TorrentdistError):
            ca_key = (await asyncio.to_thread(key.key_text)).encode()
    return session_key(job_key, ca_key)
