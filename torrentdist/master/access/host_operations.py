"""The changes of hosts: invite one, give it a certificate, renew that, and shut the host out.

Each is a pure function from a snapshot to ZooKeeper operations, which changes/commit.py commits.
Always: a certificate carries the role, the id and the addresses of its invitation, or of the
certificate that it renews, and nothing that a requester asks for. An invitation is good for one
key.
Never: issue a certificate that is not in the records.
"""

import hmac
from collections.abc import Sequence

import msgspec

from torrentdist.cluster import paths
from torrentdist.cluster.records.snapshot import ClusterSnapshot, HostEntry, InvitationEntry
from torrentdist.cluster.session.znode_operations import Create, Delete, Op, Set
from torrentdist.model import ids
from torrentdist.model.access.host_messages import HostView, InvitationBody, MembershipState
from torrentdist.model.access.host_record import HostRecord, InvitationRecord
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.records import MasterRecord, OwnCertificate, SupervisorRecord, encode
from torrentdist.model.wire.view import view_of
from torrentdist.security.authority.certificates import CertificateFacts, checked_addresses, facts_of
from torrentdist.security.authority.pem_texts import parse_certificate
from torrentdist.security.authorization import ALL_BUNDLES, checked_pattern
from torrentdist.security.certificate_identity import CertificateRole
from torrentdist.security.tokens import hash_of, is_hash

LONGEST_TTL_SECS = 7 * 86_400.0
MOST_OPEN = 20_000
KEEP_SECS = 30 * 86_400.0
"""How long an invitation is kept after its end: its host gets its certificate again with it, which
lives no longer."""
MOST_FORGOTTEN = 50
SKEW_SECS = 1.0
"""A certificate after a revocation begins this much later than the revoked ones end."""


def new_invitation(body: InvitationBody, by: str, now: float) -> InvitationRecord:
    """Returns the record that a request asks for. Raises `invalid_request` if it is wrong."""
    if body.role not in (CertificateRole.MASTER, CertificateRole.SUPERVISOR):
        raise TorrentdistError("invalid_request", detail="an invitation is for a master or a supervisor")
    if not 0 < body.ttl_secs <= LONGEST_TTL_SECS:
        raise TorrentdistError("invalid_request", detail="an invitation lives for more than 0 s, and 7 days at most")
    if not is_hash(body.hash):
        raise TorrentdistError("invalid_request", detail="the hash is not SHA-256 in 64 lower-case hex digits")
    addresses = checked_addresses(body.addresses)
    if not addresses:
        raise TorrentdistError("invalid_request", detail="an invitation names the addresses of its host")
    bundles = checked_host_pattern(body.bundles)
    if bundles != ALL_BUNDLES and body.role != CertificateRole.SUPERVISOR:
        raise TorrentdistError("invalid_request", detail="a master has every bundle; a pattern is for supervisors")
    return InvitationRecord(
        id=ids.peer_id(body.id),
        role=body.role,
        addresses=addresses,
        hash=body.hash,
        created_by=by,
        expires_at=now + body.ttl_secs,
        bundles=bundles,
    )


def invitation_ops(snapshot: ClusterSnapshot, record: InvitationRecord, now: float) -> Sequence[Op]:
    """Writes an invitation for an id that no live host has, and forgets old ones. It replaces an
    older one of its id."""
    check_free(snapshot, record.id)
    others = {id_: entry for id_, entry in snapshot.invitations.items() if id_ != record.id}
    size = 1 + sum(_is_open(entry.record, now) for entry in others.values())
    if size > MOST_OPEN:
        raise TorrentdistError("too_large", what="the list of invitations", size=size, limit=MOST_OPEN)
    over = sorted(id_ for id_, entry in others.items() if entry.record.expires_at < now - KEEP_SECS)
    forgotten = [Delete(paths.invitation(id_), others[id_].version) for id_ in over[:MOST_FORGOTTEN]]
    written = _written(paths.invitation(record.id), encode(record), snapshot.invitations.get(record.id))
    return [written, *forgotten]


def _is_open(record: InvitationRecord, now: float) -> bool:
    return not record.key and now < record.expires_at


def check_free(snapshot: ClusterSnapshot, id_: str) -> None:
    """Raises `host_exists` if a host of this id may be alive."""
    known = snapshot.hosts.get(id_)
    if known is not None and known.record.has_certificate and not known.record.is_revoked:
        raise TorrentdistError("host_exists", id=id_, detail=f"a {known.record.role} with a certificate of its own")
    registered = {*map(str, snapshot.masters), *map(str, snapshot.supervisors)}
    if (known is None or not known.record.is_revoked) and id_ in registered:
        raise TorrentdistError("host_exists", id=id_, detail="it is running, with a certificate from elsewhere")


def invited(snapshot: ClusterSnapshot, id_: str, secret: str, key: str, now: float) -> InvitationRecord:
    """Returns the invitation that this secret and key may use. Raises `invitation_invalid`."""
    entry = snapshot.invitations.get(id_)
    digest = "" if entry is None else entry.record.hash
    if not hmac.compare_digest(hash_of(secret), digest) or entry is None:
        raise TorrentdistError("invitation_invalid", id=id_, detail="there is none with this secret")
    record = entry.record
    if record.key not in ("", key):
        raise TorrentdistError("invitation_invalid", id=id_, detail="it was used, for another key")
    if record.key == "" and now >= record.expires_at:
        raise TorrentdistError("invitation_invalid", id=id_, detail="it has expired")
    return record


def issued_already(snapshot: ClusterSnapshot, invitation: InvitationRecord) -> bool:
    """Whether the invitation was used, and its certificate is the one on record."""
    if not invitation.key:
        return False
    host = snapshot.hosts.get(invitation.id)
    if host is None or host.record.is_revoked or host.record.key != invitation.key:
        raise TorrentdistError("invitation_invalid", id=invitation.id, detail="its certificate was revoked")
    return True


def redemption_ops(
    snapshot: ClusterSnapshot, invitation: InvitationRecord, certificate: str, facts: CertificateFacts, key: str
) -> Sequence[Op]:
    """Records a certificate, and that the invitation was used for its key."""
    entry = snapshot.invitations.get(invitation.id)
    if entry is None or entry.record != invitation:
        raise TorrentdistError("invitation_invalid", id=invitation.id, detail="it was replaced by another one")
    check_free(snapshot, invitation.id)
    host = snapshot.hosts.get(invitation.id)
    record = new_host(host, certificate, facts, key, invitation.bundles)
    used = msgspec.structs.replace(invitation, key=key)
    return [
        _written(paths.host(record.id), encode(record), host),
        Set(paths.invitation(used.id), encode(used), entry.version),
    ]


def renewal_ops(
    snapshot: ClusterSnapshot, old: CertificateFacts, certificate: str, facts: CertificateFacts, key: str
) -> Sequence[Op]:
    """Records the successor of a certificate."""
    assert old.identity is not None
    check_renewable(snapshot, old, key)
    host = snapshot.hosts.get(old.identity.id)
    bundles = ALL_BUNDLES if host is None else host.record.bundles
    record = new_host(host, certificate, facts, key, bundles)
    return [_written(paths.host(record.id), encode(record), host)]


def check_renewable(snapshot: ClusterSnapshot, old: CertificateFacts, key: str) -> None:
    """Raises the error that says why the holder of this certificate gets no other one."""
    identity = old.identity
    if identity is None or not identity.is_host:
        raise TorrentdistError("certificate_refused", detail="only hosts renew their certificates by themselves")
    host = snapshot.hosts.get(identity.id)
    if host is None:
        return  # it was issued by `ca issue`
    if host.record.is_revoked or host.record.refuses(old.begins_at):
        raise TorrentdistError("host_revoked", id=identity.id)
    if host.record.has_certificate and (host.record.key, host.record.role) != (key, identity.role.value):
        raise TorrentdistError("host_exists", id=identity.id, detail="its certificate is for another key")


def revocation_ops(snapshot: ClusterSnapshot, id_: str, by: str, now: float, *, unknown: bool = False) -> Sequence[Op]:
    """Shuts out every certificate of this id issued until now, and voids its invitation. The
    recorded one is shut out wherever the clock of the leader that issued it was.

    `unknown`: also if no host of this id was ever seen here.
    """
    host, invitation = snapshot.hosts.get(id_), snapshot.invitations.get(id_)
    registered = {*map(str, snapshot.masters), *map(str, snapshot.supervisors)}
    if host is None and invitation is None and id_ not in registered and not unknown:
        raise TorrentdistError("not_found", what=f"a host {id_!r}")
    ops: list[Op] = []
    if host is None or not host.record.is_revoked:
        known = HostRecord(id=id_) if host is None else host.record
        until = max(now, known.revoked_until, recorded_begin(known))
        revoked = msgspec.structs.replace(known, is_revoked=True, revoked_until=until, revoked_by=by)
        ops.append(_written(paths.host(id_), encode(revoked), host))
    if invitation is not None and not invitation.record.key:
        void = msgspec.structs.replace(invitation.record, expires_at=0.0)
        ops.append(Set(paths.invitation(id_), encode(void), invitation.version))
    return ops


def recorded_begin(record: HostRecord) -> float:
    """Returns the moment from which the recorded certificate is valid; 0: there is none."""
    try:
        return facts_of(parse_certificate(record.certificate.encode())).begins_at if record.certificate else 0.0
    except ValueError:  # A damaged record must not keep its host in.
        return 0.0


def bundles_ops(snapshot: ClusterSnapshot, id_: str, bundles: str) -> Sequence[Op]:
    """Sets which bundles a supervisor may have besides those that are assigned to it."""
    host = snapshot.hosts.get(id_)
    if host is None and id_ not in snapshot.supervisors:
        raise TorrentdistError("not_found", what=f"a host {id_!r}")
    known = HostRecord(id=id_) if host is None else host.record
    if known.role == CertificateRole.MASTER:
        raise TorrentdistError("invalid_request", detail="a master has every bundle; a pattern is for supervisors")
    return [_written(paths.host(id_), encode(msgspec.structs.replace(known, bundles=bundles)), host)]


def checked_host_pattern(text: str) -> str:
    """Returns the pattern of a host's bundles. Empty: only what is assigned to it."""
    return checked_pattern(text) if text else ""


def new_host(known: HostEntry | None, certificate: str, facts: CertificateFacts, key: str, bundles: str) -> HostRecord:
    identity = facts.identity
    assert identity is not None
    return HostRecord(
        id=identity.id,
        role=identity.role.value,
        addresses=facts.addresses,
        serial=facts.serial,
        certificate=certificate,
        key=key,
        expires_at=facts.expires_at,
        revoked_until=known.record.revoked_until if known is not None else 0.0,
        bundles=bundles,
    )


def earliest(snapshot: ClusterSnapshot, id_: str) -> float:
    """Returns the moment from which a new certificate of this id may be valid."""
    host = snapshot.hosts.get(id_)
    return 0.0 if host is None or not host.record.revoked_until else host.record.revoked_until + SKEW_SECS


def host_view(record: HostRecord, now: float) -> HostView:
    state = MembershipState.REVOKED if record.is_revoked else MembershipState.LIVE
    if state is MembershipState.LIVE and record.has_certificate and now >= record.expires_at:
        state = MembershipState.EXPIRED
    return view_of(HostView, record, state=state, addresses=list(record.addresses))


def host_views(snapshot: ClusterSnapshot, now: float, server_now: float) -> list[HostView]:
    """Returns every host with a recorded certificate, every open invitation, and the registered
    hosts of `ca issue`, with the certificates that they say they have."""
    views = {id_: host_view(entry.record, now) for id_, entry in snapshot.hosts.items()}
    daemons: list[MasterRecord | SupervisorRecord] = [*snapshot.masters.values(), *snapshot.supervisors.values()]
    for daemon in daemons:
        known = snapshot.hosts.get(daemon.id)
        host = HostRecord(id=daemon.id) if known is None else known.record
        if daemon.certificate is not None and not (host.has_certificate or host.is_revoked):
            views[daemon.id] = host_view(_as_registered(host, daemon, daemon.certificate), now)
    for id_, entry in snapshot.invitations.items():
        record = entry.record
        if _is_open(record, server_now) and (id_ not in views or views[id_].state is MembershipState.REVOKED):
            addresses, state = list(record.addresses), MembershipState.INVITED
            views[id_] = view_of(HostView, record, id=id_, serial="", state=state, addresses=addresses)
    return [views[id_] for id_ in sorted(views)]


def _as_registered(record: HostRecord, daemon: MasterRecord | SupervisorRecord, own: OwnCertificate) -> HostRecord:
    role = CertificateRole.MASTER if isinstance(daemon, MasterRecord) else CertificateRole.SUPERVISOR
    addresses, serial, expires_at = (daemon.host,), own.serial, own.expires_at
    return msgspec.structs.replace(record, role=role, addresses=addresses, serial=serial, expires_at=expires_at)


def _written(path: str, data: bytes, known: HostEntry | InvitationEntry | None) -> Op:
    return Create(path, data) if known is None else Set(path, data, known.version)
