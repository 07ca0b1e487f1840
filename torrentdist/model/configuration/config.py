"""The configuration as values: every key, its default and its meaning. settings.py reads the files.

Unknown keys are errors (forbid_unknown_fields); secrets are never values here, only the names of
files that hold them.
"""

# Without `from __future__ import annotations`: every command would evaluate all of them again, as
# text (3 ms).
from typing import Any

import msgspec


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ClientConfig(Section, frozen=True, kw_only=True):
    masters: list[str] = msgspec.field(default_factory=lambda: ["http://127.0.0.1:7060"])
    """URLs of some masters; the others are learned."""
    supervisor: str = "http://127.0.0.1:7070"
    """This host's supervisor; empty: never use one."""
    token_file: str = ""
    ca_file: str = ""
    """The CA of the cluster, which masters at https:// URLs have to prove themselves by. Empty: the
    CAs that the system trusts."""
    certificate_file: str = ""
    """A certificate of one's own, which may stand in for a token. Empty: none."""
    key_file: str = ""
    token_in_the_clear: bool = False
    """Send the token to other hosts over plain HTTP too, where anybody on the way can read it."""
    deadline_secs: float = 60.0
    """How long a request goes on looking for a leader."""


class MasterConfig(Section, frozen=True, kw_only=True):
    id: str = ""
    """Empty: made from the host name and the port."""
    host: str = ""
    """The address that others reach this master by. Empty: the listening address."""
    data_dir: str = "/var/lib/torrentdist/master"
    upgrade_after_secs: float = 600.0
    """When all daemons have been of the newer release for so long, records are written as only that
    one reads them."""
    snapshot_changes: int = 1000
    """After how many changes a standby saves the cluster's records on its disk, at the latest."""
    snapshot_secs: float = 60.0
    """How long after the last time it does so, if anything changed."""


class SupervisorConfig(Section, frozen=True, kw_only=True):
    id: str = ""
    host: str = ""
    data_dir: str = "/var/lib/torrentdist/supervisor"
    slots: int = 4
    labels: dict[str, str] = {}
    gateway_port: int = 7070
    """The loopback gateway; 0: any free port."""
    gateway_users: list[str] = []
    """Names or numbers of the users of this host who may use the gateway; empty: everybody."""
    port: int = 0
    """On api.listen, where `job logs` of other hosts reads its workers' output; 0: any free port.
    """
    launcher: str = ""
    """The socket of this host's launcher, which starts workers in namespaces of their own; empty:
    the supervisor starts them itself, in namespaces where the host allows that without privileges.
    """
    read_stall_secs: float = 45.0
    """The gateway resets an answer when nothing has come for it for so long. Keep it below
    spark.files.fetchTimeout."""
    log_keep_secs: float = 7 * 24 * 3600.0
    """How long the output of a worker that has left this host is kept."""
    seed_secs: float = -1.0
    """How long to go on seeding what was fetched and is not assigned; -1: until room is needed."""


class ApiConfig(Section, frozen=True, kw_only=True):
    listen: str = "127.0.0.1"
    port: int = 7060
    token_file: str = ""
    insecure_listen: bool = False
    """Listen beyond loopback without TLS: anybody on the way reads tokens and bundles."""
    hosts: list[str] = msgspec.field(default_factory=list)
    """Further names by which clients call this daemon. Its host name and its address are known."""
    max_request_bytes: int = 64 * 1024 * 1024
    shutdown_secs: float = 10.0


class TlsConfig(Section, frozen=True, kw_only=True):
    mode: str = "off"
    """mutual: HTTPS, where daemons prove themselves by certificate, and people by a certificate or
    a token. off: plain HTTP."""
    ca_file: str = ""
    """The CA that every certificate of the cluster is verified by. Several, while it is rotated."""
    certificate_file: str = ""
    """This daemon's certificate, which names its role, its id and its address."""
    key_file: str = ""


class ZooKeeperConfig(Section, frozen=True, kw_only=True):
    servers: list[str] = msgspec.field(default_factory=lambda: ["127.0.0.1:2181"])
    chroot: str = "/torrentdist"
    session_timeout_secs: float = 10.0
    operation_timeout_secs: float = 5.0
    auth_file: str = ""
    """A file with `user:password`, for digest authentication and the ACLs. Empty: open, for `dev`
    only."""
    sasl: bool = False
    """Use SASL DIGEST-MD5 with auth_file instead of the digest scheme."""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""


class SwarmConfig(Section, frozen=True, kw_only=True):
    listen: str = ""
    """The address that peers dial; empty: the API's."""
    port: int = 0
    upload_limit: int = 0
    """Bytes per second, 0: no limit. Holds between private addresses too."""
    download_limit: int = 0
    fetching_secs: float = 1.0
    """How often a peer that is fetching tells the directory."""
    seeding_secs: float = 15.0
    """How often an idle seeder does."""
    nice: int = 10
    """How much what moves the bytes gives way to what else wants a processor, by nice(2): 0 is not
    at all. Where every processor is taken by others, 10 is about a tenth of one, and 5 a quarter.
    """


class StoreConfig(Section, frozen=True, kw_only=True):
    limit_bytes: int = 0
    """What the store may hold; 0: as much as the disk has, less reserve_bytes."""
    reserve_bytes: int = 256 * 1024 * 1024
    """What stays free on the disk for everybody else."""
    scrub_secs: float = 24 * 3600.0
    """How often every byte is read and verified again; 0: only at start."""


class ReplicationConfig(Section, frozen=True, kw_only=True):
    min_count: int = 2
    max_wait_secs: float = 60.0
    sync_secs: float = 120.0
    parallel_fetches: int = 4
    """How many bundles a master catches up on at a time. What is being uploaded is always fetched,
    and first."""
    catch_up_limit: int = 0
    """Bytes per second, 0: no limit, for what a master catches up on in the swarm; not for what is
    being uploaded."""
    abandon_secs: float = 3600.0
    """An upload whose uploader is silent for this long is forgotten."""
    lost_secs: float = 300.0
    """A bundle that nobody has had for so long, supervisors included, is marked lost."""
    tombstone_secs: float = 7 * 24 * 3600.0


class RequestsConfig(Section, frozen=True, kw_only=True):
    keep_secs: float = 600.0
    """How long the answer to a mutation is kept for its retries; longer than any client's
    deadline_secs."""


class JobsConfig(Section, frozen=True, kw_only=True):
    validator: str = ""
    """A plug-in that may refuse jobs, `package.module:Class`. Empty: none."""
    defaults: dict[str, Any] = {}
    """What holds for jobs that don't say otherwise: keys of job.toml."""
    silent_secs: float = 30.0
    """A supervisor that is registered, but from which the leader hears nothing for so long, loses
    its workers to others. 0: never."""
    keep_secs: float = 7 * 24 * 3600.0
    """How long a finished or failed job is still listed, and what a supervisor that is gone was to
    run remembered."""


class CodeDistributorConfig(Section, frozen=True, kw_only=True):
    class_: str = msgspec.field(name="class", default="torrentdist.distributor.torrent:TorrentCodeDistributor")
    options: dict[str, Any] = {}
    """Handed to the plug-in's prepare() as they are."""


class LogConfig(Section, frozen=True, kw_only=True):
    level: str = "info"
    format: str = "auto"
    """console, json, or auto: console on a terminal."""


class EventsConfig(Section, frozen=True, kw_only=True):
    enabled: bool = True
    """Write what happens as JSON lines below data_dir, in `events`, for `torrentdist report`."""
    rack: str = ""
    """Where this host stands, for the report. Empty: the supervisor's label `rack`."""
    file_bytes: int = 8 * 1024 * 1024
    """A file is closed, and can be shipped, when it is this large..."""
    file_secs: float = 60.0
    """...or this old."""
    keep_bytes: int = 256 * 1024 * 1024
    """What closed files may take together; the oldest go first."""
    keep_secs: float = 7 * 24 * 3600.0
    progress_secs: float = 5.0
    """How often a download tells how far it is."""


class Config(Section, frozen=True, kw_only=True):
    client: ClientConfig = ClientConfig()
    master: MasterConfig = MasterConfig()
    supervisor: SupervisorConfig = SupervisorConfig()
    api: ApiConfig = ApiConfig()
    tls: TlsConfig = TlsConfig()
    zookeeper: ZooKeeperConfig = ZooKeeperConfig()
    swarm: SwarmConfig = SwarmConfig()
    store: StoreConfig = StoreConfig()
    replication: ReplicationConfig = ReplicationConfig()
    requests: RequestsConfig = RequestsConfig()
    jobs: JobsConfig = JobsConfig()
    codedistributor: CodeDistributorConfig = CodeDistributorConfig()
    log: LogConfig = LogConfig()
    events: EventsConfig = EventsConfig()

    @property
    def client_swarm(self) -> SwarmConfig:
        """For a command that is a peer itself. Where a daemon is configured too, the port is the
        daemon's."""
        of_daemon = self.master != MasterConfig() or self.supervisor != SupervisorConfig()
        return msgspec.structs.replace(self.swarm, port=0) if of_daemon else self.swarm
