"""Says what this master still lacks to do its work, and describes its role to the other masters and
to users."""

import time

from torrentdist import __version__
from torrentdist.cluster.session.znode_operations import SessionState
from torrentdist.master.leading.leadership import Leadership
from torrentdist.master.leading.roles import lag
from torrentdist.master.master_core import MasterCore
from torrentdist.model.errors import NO_CLUSTER
from torrentdist.model.wire.ha_views import RoleView


def failing_checks(core: MasterCore) -> dict[str, str]:
    """Returns the checks that fail now, each with its reason."""
    failing = {}
    state = core.session.zookeeper.state
    if state is not SessionState.CONNECTED:
        failing["zookeeper"] = f"the session is {state}"
    if core.records.lacks_cluster():
        return failing | {"cluster": NO_CLUSTER}
    if not core.registration.registered:
        failing["registration"] = "not registered yet"
    if not core.records.snapshot().present:
        failing["records"] = "the cluster's records are not known yet"
    return failing


def own_role(core: MasterCore, leadership: Leadership) -> RoleView:
    snapshot, failing, zookeeper = core.records.snapshot(), failing_checks(core), core.session.zookeeper
    return RoleView(
        id=core.session.me,
        url=core.url,
        state=leadership.state(),
        epoch=snapshot.epoch,
        lag=lag(snapshot, core.host.runtime.store.published_digests()),
        version=__version__,
        ready=not failing,
        failing=failing,
        now=time.time(),
        session_secs=zookeeper.asked_timeout,
        granted_secs=zookeeper.negotiated_timeout if zookeeper.session_id is not None else None,
        write_secs=zookeeper.write_secs,
    )
