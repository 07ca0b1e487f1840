"""The jobs of this host, for its daemon: workers, their output, and the reports to the masters."""

from torrentdist.host.process.host_daemon import HostDaemon
from torrentdist.host.process.room import Loop, Room
from torrentdist.model.ids import SupervisorId
from torrentdist.security.job_token import key_of_host
from torrentdist.supervisor.bundles.room import BundleRoom
from torrentdist.supervisor.exclusivity.isolation import Isolation
from torrentdist.supervisor.gateway.doors import gateway_url
from torrentdist.supervisor.jobs.host_workers import HostWorkers
from torrentdist.supervisor.jobs.job_signatures import JobSignatures
from torrentdist.supervisor.jobs.local_state import LeftBehind
from torrentdist.supervisor.jobs.reporting import Reporting, job_facts
from torrentdist.supervisor.jobs.worker_api import WorkerApi
from torrentdist.supervisor.jobs.worker_table import WorkerServices
from torrentdist.supervisor.place.znode_watch import ZnodeWatch, own_key
from torrentdist.supervisor.process.job_isolation import policy_of
from torrentdist.supervisor.process.output_api import OutputApi


class JobRoom(Room, frozen=True, kw_only=True):
    workers: HostWorkers


def job_room(host: HostDaemon, watch: ZnodeWatch, bundles: BundleRoom, left: LeftBehind) -> JobRoom:
    """Builds the room, with the workers that the previous process left."""
    config, keeper, id_ = host.config, bundles.keeper, SupervisorId(host.identity.id)
    services = WorkerServices(
        store=host.runtime.store,
        facts=lambda job: job_facts(host.http, watch.master_urls(), job),
        checked=keeper.checked,
        spec_of=JobSignatures(config, bundles.signatures).spec_of,
        trouble=keeper.trouble,
        lease_sent=watch.recheck_masters,
        gateway=gateway_url(host),
        settings=config.supervisor,
        host=host.identity.address,
        job_key=host.guard.job_key or key_of_host(own_key(host.zookeeper)),
    )
    isolation = Isolation(host.http, id_, watch)
    workers = HostWorkers(host.zookeeper, config.supervisor, policy_of(config), left, isolation, services)
    keeper.need(workers.needs())
    workers.on_change(lambda: keeper.need(workers.needs()))
    watch.on_masters_read.append(workers.prolonged)
    reporting = Reporting(host.http, id_, watch.master_urls, workers, host.runtime.events.emit)
    output = OutputApi(workers.homes, workers.placed)
    return JobRoom(
        routers=(WorkerApi(workers), output),
        outside=(output,),
        loops=(*workers.loops(), Loop("reporting", reporting.run)),
        workers=workers,
    )
