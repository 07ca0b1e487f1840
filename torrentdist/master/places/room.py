"""The room of places: where hosts register and join groups in ZooKeeper, and resource groups."""

from torrentdist.host.process.room import Loop, Room, When
from torrentdist.master.leading.room import LeadingRoom
from torrentdist.master.master_core import MasterCore
from torrentdist.master.places.grant_loop import GrantLoop
from torrentdist.master.places.place_api import GroupApi, PlaceApi
from torrentdist.master.places.place_removal import PlaceRemoval


def places_room(core: MasterCore, leading: LeadingRoom) -> Room:
    session, leadership = core.session, leading.leadership
    loops = [
        Loop("grants", GrantLoop(session, leadership).run, When.REGISTERED),
        Loop("places", PlaceRemoval(session, leadership).run, When.REGISTERED),
    ]
    return Room(
        routers=[
            PlaceApi(session.zookeeper, leading.changes, leadership),
            GroupApi(session.zookeeper, leading.changes, leadership),
        ],
        loops=loops if core.config.zookeeper.identities else (),
    )
