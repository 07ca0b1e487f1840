"""The room of access to a master: tokens, hosts' certificates, revocations, and the audit."""

from torrentdist.host.process.room import Loop, Room
from torrentdist.master.access.audit_trail import AuditApi, AuditTrail
from torrentdist.master.access.host_issuing import HostApi, HostIssuing
from torrentdist.master.access.job_keys import JobKeys
from torrentdist.master.access.kept_revocations import KeptRevocations
from torrentdist.master.access.token_api import ProofApi, TokenApi
from torrentdist.master.access.token_operations import TokenOperations
from torrentdist.master.access.url_api import UrlApi
from torrentdist.master.leading.room import LeadingRoom
from torrentdist.master.master_core import MasterCore
from torrentdist.master.swarm.swarms import Swarms
from torrentdist.security.authority.issuing_key import IssuingKey


class AccessRoom(Room, frozen=True, kw_only=True):
    trail: AuditTrail
    key: IssuingKey
    job_keys: JobKeys


async def access_room(core: MasterCore, leading: LeadingRoom, swarms: Swarms) -> AccessRoom:
    """Reads what the audit told before."""
    host, records, session = core.host, core.records, core.session
    leadership, changes = leading.leadership, leading.changes
    trail = AuditTrail(session.me, host.runtime.events, core.now)
    await trail.load(host.runtime.store.data_dir / "events")
    key = IssuingKey(core.config.tls)
    issuing = HostIssuing(changes, lambda: session.mirror.snapshot, key, core.now)
    revocations = KeptRevocations(session, leadership, records.snapshot())
    return AccessRoom(
        trail=trail,
        key=key,
        job_keys=JobKeys(records.snapshot, swarms.hosts_running, records.secrets.host_key, host.guard.job_key),
        routers=[
            AuditApi(trail),
            ProofApi(records, core.url, host.guard.token),
            TokenApi(TokenOperations(changes, core.now), leadership, records),
            UrlApi(changes, leadership, records, core.now),
            HostApi(issuing, key, leadership, records, core.now),
        ],
        loops=[Loop("audit", trail.log.run), Loop("revocations", revocations.run)],
    )
