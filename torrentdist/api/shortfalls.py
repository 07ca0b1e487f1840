"""Ends a call that reached fewer masters or hosts than wanted with the error `partly`.

Always: the error says what is missing. Its `extra["result"]` is the result of what was done.
"""

from collections.abc import Sequence
from typing import Any

from torrentdist.client.bundles.distribute import hosts_needed
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, MasterId
from torrentdist.model.wire.fleet_messages import DistributeView
from torrentdist.model.wire.transfer_messages import UploadView
from torrentdist.model.wording import counted

RESULT = "result"
_NAMED = 5


async def expect_replicas(client: MasterClient, view: UploadView) -> None:
    """Raises `partly` if fewer masters than wanted hold an uploaded bundle."""
    if not view.achieved:
        missing = await _missing(client, view.id)
        raise TorrentdistError("partly", detail=lacking_masters(view, missing), extra={RESULT: view})


def expect_hosts(view: DistributeView, share: float) -> None:
    """Raises `partly` if less than `share` of the hosts hold a distributed bundle."""
    if view.done < hosts_needed(share, view.hosts):
        raise TorrentdistError("partly", detail=lacking_hosts(view), extra={RESULT: view})


def result_in(error: TorrentdistError) -> Any:
    """Returns the result of what was done before a `partly`; None for another error."""
    return error.extra.get(RESULT) if error.code == "partly" else None


async def _missing(client: MasterClient, name: BundleId) -> list[MasterId]:
    """Returns the live masters that do not hold the bundle; none if they cannot be asked now."""
    try:
        cluster = await client.cluster()
        holders = (await client.bundle(name)).holders
    except TorrentdistError:
        return []
    return [master.id for master in cluster.masters if master.id not in holders]


def lacking_masters(view: UploadView, missing: Sequence[MasterId]) -> str:
    """Returns a line such as `bundle etl-42 has 1 of 3 replicas; missing on: m2, m3`."""
    where = f"missing on: {', '.join(missing)}" if missing else "no other master is up"
    return f"bundle {view.id} has {view.replicas} of {counted(view.min_replicas, 'replica')}; {where}"


def lacking_hosts(view: DistributeView) -> str:
    """Returns a line such as `bundle etl-42 is on 14 of 16 hosts; missing: h3 (stuck: disk full),
    h9 (gone)`."""
    named = [f"{host.supervisor} ({host.reason})" for host in view.failed[:_NAMED]]
    more = [f"and {len(view.failed) - _NAMED} more"] if len(view.failed) > _NAMED else []
    return f"bundle {view.id} is on {view.done} of {counted(view.hosts, 'host')}; missing: {', '.join(named + more)}"
