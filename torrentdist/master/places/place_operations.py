"""A host's place in ZooKeeper: the parents in which it alone registers and joins the jobs' group.

Each is a pure function from a snapshot to ZooKeeper operations, which changes/commit.py commits.
Always: a place belongs to the present holder of an id. A host that was shut out gets none.
"""

from collections.abc import Sequence

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.cluster.session.znode_operations import Create, Op, Set
from torrentdist.model.access.zookeeper_identity import host_of, host_user
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.records import SCHEMA

NOBODY = b""
"""The content of both parents of a place that a host has lost, and in which something is left."""
PARENTS = (paths.PLACES, paths.JOB_GROUP.members, paths.JOB_GROUP.barriers)


def user_of(snapshot: ClusterSnapshot, id_: str) -> str:
    """Returns the ZooKeeper user of the host that has this id now, or gets it next."""
    host = snapshot.hosts.get(id_)
    return host_user(id_, 0.0 if host is None else host.record.revoked_until)


def is_shut_out(snapshot: ClusterSnapshot, user: str) -> bool:
    """Whether this user is a host that was revoked, whether or not its id has another host since
    then."""
    id_ = host_of(user)
    if id_ is None or not paths.is_name(id_):
        return False
    host = snapshot.hosts.get(id_)
    return host is not None and (host.record.is_revoked or user != user_of(snapshot, id_))


def place_ops(snapshot: ClusterSnapshot, id_: str) -> Sequence[Op]:
    """Makes a host's place. Does nothing if it is there."""
    host = snapshot.hosts.get(id_)
    if host is not None and host.record.is_revoked:
        raise TorrentdistError("host_revoked", id=id_)
    if snapshot.schema < SCHEMA:
        raise TorrentdistError("not_ready", detail="daemons of an earlier release are registered, which know no places")
    user = user_of(snapshot, id_)
    there = snapshot.places.get(id_)
    if there == user:
        return []
    if there:
        raise TorrentdistError("not_ready", detail=f"the place of an earlier {id_!r} is still there")
    make = Create if there is None else Set
    return [make(path, user.encode()) for path in (paths.place(id_), paths.host_members(id_))]
