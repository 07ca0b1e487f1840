"""The border's room of a supervisor: pieces from other zones, and pieces for them."""

from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.host.process.room import Loop, Room
from torrentdist.supervisor.border.border_fetch import BorderFetch
from torrentdist.supervisor.border.piece_api import PieceApi


def border_room(host: HostDaemon) -> Room:
    runtime = host.runtime
    fetch = BorderFetch(runtime.engine, runtime.known, host.links)
    return Room(outside=(PieceApi(runtime.engine),), loops=(Loop("border", fetch.run),))
