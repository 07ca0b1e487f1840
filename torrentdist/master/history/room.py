"""The room of a master's history of distributions."""

from torrentdist.host.process.room import Loop, Room, When
from torrentdist.master.history.distribution_history import DistributionHistory, closing
from torrentdist.master.history.history_api import HistoryApi
from torrentdist.master.history.history_file import HistoryFile
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.master_core import MasterCore
from torrentdist.master.swarm.swarms import Swarms

CLOSING_SECS = 3.0


class HistoryRoom(Room, frozen=True, kw_only=True):
    history: DistributionHistory


async def history_room(core: MasterCore, leadership: Leadership, swarms: Swarms) -> HistoryRoom:
    """Reads what was kept. What is not on disk yet is written when the host closes."""
    host = core.host
    file, tell = HistoryFile(host.runtime.store.data_dir), host.runtime.events.emit
    history = DistributionHistory(core.session, swarms, leadership.is_leader, host.http, file, tell)
    await history.load()
    host.close_later(lambda: closing(history, CLOSING_SECS))
    return HistoryRoom(
        history=history,
        routers=[HistoryApi(history)],
        loops=[Loop("history", history.run, When.MIRRORED)],
    )
