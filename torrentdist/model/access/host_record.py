"""The records of hosts, of their presence and of invitations in ZooKeeper.

Always: they hold a hash of an invitation's secret, and no key but public ones.
"""

from torrentdist.model.ids import JobId
from torrentdist.model.records import Record


class HostRecord(Record, frozen=True, kw_only=True):
    """/hosts/<id>: the newest certificate of a host, and whether the host was shut out. All times
    are those of the leader that wrote the record, like the times in certificates."""

    id: str
    role: str = ""
    """Empty: no certificate of its id was recorded yet."""
    addresses: tuple[str, ...] = ()
    serial: str = ""
    certificate: str = ""
    """The certificate in PEM."""
    key: str = ""
    """SHA-256 of its public key."""
    expires_at: float = 0.0
    is_revoked: bool = False
    revoked_until: float = 0.0
    """Certificates of this id that begin at this moment or before are refused for good."""
    revoked_by: str = ""
    bundles: str = "*"
    """The pattern of the bundles that the host may have besides those that are assigned to it.
    Empty: none."""

    @property
    def has_certificate(self) -> bool:
        """Whether a certificate of it is recorded. Those of `ca issue` are not, until they are
        renewed."""
        return bool(self.role)

    def refuses(self, begins_at: float) -> bool:
        """Whether a certificate of this id was revoked."""
        return self.is_revoked or begins_at <= self.revoked_until


class InvitationRecord(Record, frozen=True, kw_only=True):
    """/invitations/<id>: what one host may become, once."""

    id: str
    role: str
    addresses: tuple[str, ...]
    hash: str
    """SHA-256 of the secret, in hex."""
    created_by: str = ""
    expires_at: float
    """By ZooKeeper's clock."""
    key: str = ""
    """SHA-256 of the public key that it was used for. Empty: it was not used yet."""
    bundles: str = "*"
    """The pattern of the bundles that the host may have besides those that are assigned to it."""


class PresenceRecord(Record, frozen=True, kw_only=True):
    """/known-masters/<id> and /known-supervisors/<id>: a daemon that belongs to the cluster until
    it stops cleanly, is drained, or is forgotten."""

    id: str
    host: str = ""
    """Its last address."""
    absent_at: float = 0.0
    """ZooKeeper's time when a leader first saw that it is not registered; 0: it is."""
    ran: tuple[JobId, ...] = ()
    """Jobs with a worker there at that moment; only the start of a long list."""
    silent_since: float = 0.0
    """ZooKeeper's time since which it has owed the leader heartbeats; 0: it does not."""
    absences: tuple[tuple[float, float], ...] = ()
    """The last times that it was gone, from when until when."""
    started_at: float = 0.0
    """The start that its registration tells."""
    starts: tuple[float, ...] = ()
    """ZooKeeper's times when a leader saw that it had started again; the last ones."""
