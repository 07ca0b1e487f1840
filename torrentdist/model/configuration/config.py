"""The configuration as values: every key, its default and its meaning. settings.py reads the files.

Always: an unknown key is an error (forbid_unknown_fields).
Never: hold a secret; the values name the files that do.
Longer than most files: it is the whole configuration.
"""

# Without `from __future__ import annotations`: every command would evaluate all of them again, as
# text (3 ms).
from typing import Any

import msgspec


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ClientConfig(Section, frozen=True, kw_only=True):
    masters: list[str] = msgspec.field(default_factory=lambda: ["http://127.0.0.1:7060"])
    """URLs of some masters; the others are learned from them."""
    supervisor: str = "http://127.0.0.1:7070"
    """URL of this host's supervisor; empty: never use one."""
    token_file: str = ""
    """File with the token that proves who asks; empty: none."""
    ca_file: str = ""
    """CA file for verifying masters with https:// URLs; empty: the CAs that the system trusts."""
    certificate_file: str = ""
    """The client's own certificate, which may replace a token; empty: none."""
    key_file: str = ""
    """Key of certificate_file."""
    token_in_the_clear: bool = False
    """Send the token to other hosts over plain HTTP too. Anyone on the network path can then read
    it."""
    deadline_secs: float = 60.0
    """How long a request searches for a leader."""
    pod_gateway: str = "http://127.0.0.1:7073"
    """How the URLs of `torrentdist url` begin: where pods reach the gateway of their node. A
    Service with internalTrafficPolicy: Local has the same name on every node."""


class MasterConfig(Section, frozen=True, kw_only=True):
    id: str = ""
    """Id of this master; empty: derived from the host name and the port."""
    host: str = ""
    """Address at which others reach this master; empty: the listening address."""
    data_dir: str = "/var/lib/torrentdist/master"
    """Where the master keeps its bundles, events and saved records."""
    upgrade_after_secs: float = 600.0
    """After all daemons have had the newer release for this long, records are written in a form
    that only it can read."""
    snapshot_changes: int = 1000
    """A standby saves the cluster's records to disk after at most this many changes."""
    snapshot_secs: float = 60.0
    """Interval at which it saves the records if anything has changed."""
    forget_after_secs: float = 7 * 24 * 3600.0
    """How long a master or host that left without a clean stop or a drain is listed as gone. Set an
    hour where hosts come and go by themselves."""


class SupervisorConfig(Section, frozen=True, kw_only=True):
    id: str = ""
    """Id of this host; empty: `supervisor-` and its name."""
    host: str = ""
    """Address at which others reach this host; empty: the listening address."""
    data_dir: str = "/var/lib/torrentdist/supervisor"
    """Where the host keeps its bundles, workers and events."""
    ids_dir: str = "/var/lib/torrentdist/ids"
    """Directory in which each bundle that is ordered, pinned or leased is found by its id; the same
    on all hosts, so that Spark's executors know the path. The default is left out where the
    supervisor cannot make it. Empty: none."""
    slots: int = 4
    """How many workers run here at most."""
    labels: dict[str, str] = {}
    """What orders and jobs choose hosts by, such as `zone` or `rack`, each with its value."""
    gateway_port: int = 7070
    """Port of the loopback gateway; 0: any free port."""
    gateway_users: list[str] | dict[str, bool | str | list[str]] = []
    """Users of this host, by name or number, who may use the gateway. A list: they may read every
    bundle; an empty one: so may all users. A table: each user to true, false, a pattern of bundles
    or a list of patterns; nobody else may."""
    pod_listen: str = ""
    """Address at which the gateway answers pods whose URL has a capability (`torrentdist url`),
    such as the node's. Empty: none."""
    pod_port: int = 7073
    """Port of the gateway for pods; 0: any free port."""
    pod_tls: bool = False
    """Serve pods by HTTPS, with the host's certificate. It needs tls.mode."""
    port: int = 0
    """Port on api.listen at which `job logs` on other hosts reads its workers' output; 0: any free
    port."""
    launcher: str = ""
    """Socket of this host's launcher, which starts workers in their own namespaces. Empty: the
    supervisor starts them, with namespaces if the host allows these without privileges."""
    read_stall_secs: float = 45.0
    """The gateway resets an answer if no data for it arrives for this long. Keep it below
    spark.files.fetchTimeout."""
    log_keep_secs: float = 7 * 24 * 3600.0
    """How long the output of a worker is kept after the worker has left this host."""
    log_bytes: int = 10 * 1024 * 1024
    """Size at which a worker's output goes on in a new file, for each of its streams."""
    log_files: int = 5
    """How many files of each stream of a worker are kept: the last ones."""
    seed_secs: float = -1.0
    """How long to go on seeding a bundle that is no longer assigned; -1: until its room is
    needed."""


class ApiConfig(Section, frozen=True, kw_only=True):
    listen: str = "127.0.0.1"
    """Address at which this daemon answers."""
    port: int = 7060
    """Port at which this daemon answers; 0: any free one."""
    token_file: str = ""
    """File with the token of operators, the same on all daemons; empty: none, for loopback only."""
    insecure_listen: bool = False
    """Listen beyond loopback without TLS. Anyone on the network path can then read tokens and
    bundles."""
    hosts: list[str] = msgspec.field(default_factory=list)
    """Additional names by which clients call this daemon. Its host name and its address are
    known."""
    max_request_bytes: int = 64 * 1024 * 1024
    shutdown_secs: float = 10.0
    """How long a daemon that stops waits for answers that have begun."""


class TlsConfig(Section, frozen=True, kw_only=True):
    mode: str = "off"
    """mutual: HTTPS, where daemons authenticate by certificate, and people by certificate or token.
    both: HTTPS and plain HTTP at one port, while a cluster goes over. off: plain HTTP."""
    ca_file: str = ""
    """CA that issues the cluster's certificates. It may contain several CAs during a rotation."""
    certificate_file: str = ""
    """This daemon's certificate, which contains its role, id and address."""
    key_file: str = ""
    """Key of certificate_file."""
    ca_key_file: str = ""
    """On masters: the CA's key, with which the leader issues certificates. `host join` puts it
    there. Empty: certificates are issued elsewhere."""


class TrustRule(Section, frozen=True, kw_only=True):
    """The value of one pattern in `trust.bundles`."""

    mode: str = "enforce"
    keys: list[str] = []


class TrustConfig(Section, frozen=True, kw_only=True):
    cluster: str = ""
    """Name of this cluster in signatures. A signature for another name is refused here."""
    bundles: dict[str, TrustRule] = {}
    """Patterns of bundle ids, each with a `mode` (off, warn or enforce) and the public `keys` that
    may sign. The most specific pattern counts. An id that none matches has the strictest mode of
    the table, and no key."""


class ZooKeeperConfig(Section, frozen=True, kw_only=True):
    servers: list[str] = msgspec.field(default_factory=lambda: ["127.0.0.1:2181"])
    """Servers of the ensemble."""
    chroot: str = "/torrentdist"
    """Path below which the cluster has its records."""
    session_timeout_secs: float = 10.0
    """How long ZooKeeper does not hear of a daemon before it counts as gone."""
    operation_timeout_secs: float = 5.0
    auth_file: str = ""
    """File with `user:password`, for digest authentication and the ACLs. Empty: open access, for
    `dev` only."""
    sasl: bool = False
    """Use SASL DIGEST-MD5 with auth_file instead of the digest scheme."""
    identities: bool = False
    """On masters: each host and each resource group gets an identity of its own, derived from the
    password in auth_file, and can write what is its own only. Hosts get theirs when they join."""
    tls_ca: str = ""
    """CA that issues the ensemble's certificates. With it or with tls_cert, TLS is used."""
    tls_cert: str = ""
    """Certificate that this daemon shows to the ensemble."""
    tls_key: str = ""
    """Key of tls_cert."""


class SwarmConfig(Section, frozen=True, kw_only=True):
    listen: str = ""
    """Address that peers dial; empty: that of the API."""
    port: int = 0
    """Port that peers dial; 0: any free one."""
    upload_limit: int = 0
    """In bytes per second; 0: no limit. Applies between private addresses too."""
    download_limit: int = 0
    """Bytes per second that arrive at most; 0: no limit."""
    fetching_secs: float = 1.0
    """Interval at which a fetching peer announces."""
    seeding_secs: float = 15.0
    """Interval at which an idle seeder announces."""
    most_peers: int = 150_000
    """Peers for which a master's directory has room. It asks others to wait."""
    zones: dict[str, str] = {}
    """On masters: the zone of each network, such as 10.1.0.0/16, for hosts without a label `zone`.
    A bundle enters each zone about once. Empty: only labels count."""
    open_networks: list[str] = []
    """On masters: networks, such as 10.1.0.0/16, whose every address may connect to peers, besides
    those of the hosts that are there. Masters tell hosts the network instead of each address, which
    a very large cluster needs. Addresses of revoked hosts stay shut out."""
    tls: str = ""
    """on: peers prove by certificate that they are members, and encrypt what they exchange. off:
    every program at an admitted address can take part, stock BitTorrent clients too. both: seeds
    under TLS and without, on two ports, while a cluster goes over. Empty: on where tls.mode is
    mutual, and both where it is both."""
    tls_port: int = 0
    """Second port, for peers with TLS, where swarm.tls is both; 0: any free one."""
    certificate_file: str = ""
    """This host's certificates of the swarm, which it gets and renews by itself. Empty: swarm.pem
    beside tls.key_file."""
    ca_key_file: str = ""
    """On masters: key from which the CA of the swarm is made; all masters need the same. It may
    contain several keys during a rotation. Empty: tls.ca_key_file."""
    nice: int = 10
    """How much data transfer gives way to other programs that need a processor, by nice(2); 0: not
    at all. If all processors are busy, 10 leaves it about a tenth of one, and 5 a quarter."""


class StoreConfig(Section, frozen=True, kw_only=True):
    limit_bytes: int = 0
    """Most bytes in the store; 0: as many as fit on the disk, less reserve_bytes."""
    reserve_bytes: int = 256 * 1024 * 1024
    """Bytes that stay free on the disk for other programs."""
    high: int = 0
    """High mark: when a supervisor's bundles take more bytes, unused ones are removed until they
    take `low`. Pinned and assigned bundles, last copies, and what was used in the last 10 minutes
    stay. Blocks that bundles share on XFS and Btrfs count once. 0: bundles go only when room is
    needed."""
    low: int = 0
    """Low mark in bytes; 0: the high mark."""
    readable_by: str = "owner"
    """Which users of a supervisor's host read its bundles as files, which `bundle_path` and Spark's
    executors do: "owner", the supervisor's own user; "group NAME", also the members of this group;
    "everyone". Jobs read theirs in any case. Masters' files are for their own user."""
    scrub_secs: float = 24 * 3600.0
    """Interval at which every byte is read and verified again; 0: only at the start."""


class ReplicationConfig(Section, frozen=True, kw_only=True):
    min_count: int = 2
    """How many masters must hold a bundle by default before its upload is complete."""
    max_wait_secs: float = 60.0
    """How long a submitted job waits until enough masters hold its bundles; then it runs anyway.
    -1: without limit."""
    sync_secs: float = 120.0
    """Interval at which a master compares all records with its disk."""
    parallel_fetches: int = 4
    """How many bundles a master that lags behind fetches at a time. Uploads are always fetched, and
    first."""
    catch_up_limit: int = 0
    """Bytes per second for fetching bundles that the master lags behind on, but not for uploads; 0:
    no limit."""
    abandon_secs: float = 3600.0
    """An upload is forgotten when its uploader has been silent for this long."""
    lost_secs: float = 300.0
    """A bundle is marked lost when no host, supervisors included, has had it for this long."""
    tombstone_secs: float = 7 * 24 * 3600.0


class DistributionConfig(Section, frozen=True, kw_only=True):
    patience_secs: float = 30.0
    """A host that was told to fetch a bundle and makes no progress for this long counts as broken.
    A broken canary stops the distribution; in other waves, the next one begins without it."""


class RequestsConfig(Section, frozen=True, kw_only=True):
    keep_secs: float = 600.0
    """How long the answer to a change is kept for its retries. It must exceed every client's
    deadline_secs."""


PASS_ENV = [
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR"),
    *("VIRTUAL_ENV", "PYTHONPATH", "PYTHONWARNINGS", "LD_LIBRARY_PATH", "JAVA_HOME"),
    *("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_LOCAL_IP", "SPARK_LOCAL_DIRS", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"),
    *("HADOOP_HOME", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "CUDA_*", "NVIDIA_*"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
]


class JobsConfig(Section, frozen=True, kw_only=True):
    user: str = "torrentdist-jobs"
    """The user that jobs run as: a name, a number, or a range of numbers such as `20000-20999`, in
    which each job on a host has a user of its own."""
    isolation: str = ""
    """`required`: jobs run as jobs.user in namespaces of their own, or not at all. `preferred`: as
    the supervisor's own user where the host cannot do that. `none`: always so. Empty: `required`
    where api.listen is beyond loopback, else `preferred`."""
    pass_env: list[str] = msgspec.field(default_factory=lambda: list(PASS_ENV))
    """The variables of the supervisor that workers get, by name or pattern; `*` for all."""
    validator: str = ""
    """Plug-in that may refuse jobs, `package.module:Class`; empty: none."""
    defaults: dict[str, Any] = {}
    """Defaults for jobs: keys of job.toml."""
    silent_secs: float = 30.0
    """A registered supervisor that the leader has not heard from for this long loses its workers to
    other hosts; 0: never."""
    keep_secs: float = 7 * 24 * 3600.0
    """How long a finished or failed job is still listed, and the assignment of a supervisor that is
    gone is kept."""


class CodeDistributorConfig(Section, frozen=True, kw_only=True):
    class_: str = msgspec.field(name="class", default="torrentdist.distributor.torrent:TorrentCodeDistributor")
    """The plug-in that moves bytes: the name of an installed one, such as `torrent`, `local` or
    `fs`, or a class, as `package.module:Class`."""
    options: dict[str, Any] = {}
    """Passed unchanged to the plug-in's prepare()."""


class LogConfig(Section, frozen=True, kw_only=True):
    level: str = "info"
    """The least serious lines that are logged."""
    format: str = "auto"
    """console, json, or auto: console on a terminal."""


class EventsConfig(Section, frozen=True, kw_only=True):
    enabled: bool = True
    """Write events as JSON lines to `events` below data_dir, for `torrentdist report`."""
    rack: str = ""
    """Location of this host, for the report; empty: the supervisor's label `rack`."""
    file_bytes: int = 8 * 1024 * 1024
    """A file is closed, and can be shipped, when it reaches this size..."""
    file_secs: float = 60.0
    """...or this age."""
    keep_bytes: int = 256 * 1024 * 1024
    """Most bytes of closed files; the oldest are deleted first."""
    keep_secs: float = 7 * 24 * 3600.0
    """How long closed files are kept."""
    progress_secs: float = 5.0
    """Interval at which a download reports its progress."""


class TracesConfig(Section, frozen=True, kw_only=True):
    endpoint: str = ""
    """URL of an OpenTelemetry collector that takes OTLP over HTTP, such as http://127.0.0.1:4318.
    Needs `torrentdist[traces]`. Empty: no traces."""
    sample: float = 1.0
    """The share of bundles whose traces are sent, 0 to 1; the same everywhere, so that no trace has
    gaps."""

    @property
    def url(self) -> str:
        """The URL that takes spans: `endpoint` with the path that OTLP gives it."""
        base = self.endpoint.rstrip("/")
        return base if base.endswith("/v1/traces") else f"{base}/v1/traces"


class MetricsConfig(Section, frozen=True, kw_only=True):
    cluster: str = ""
    """The label `cluster` of all metrics, by which the alert rules tell clusters apart. Empty:
    trust.cluster, or else zookeeper.chroot without its slash."""


class KubernetesConfig(Section, frozen=True, kw_only=True):
    """What the CSI driver of a node reads, besides client.supervisor and supervisor.data_dir."""

    namespaces: dict[str, str | list[str]] = {}
    """The bundles that pods may have: `namespace` or `namespace/service account`, each with a
    pattern of bundles or a list of patterns; `*` and `?` may stand in both. The rights of all that
    match add up. Empty: no pod gets any."""
    keys: str = ""
    """The cluster's public keys (JWKS), as a file or an https:// URL. If set, a pod proves its
    namespace and service account by a token for `audience`. Empty: the kubelet's word counts."""
    issuer: str = ""
    """The issuer that tokens must name; empty: any that these keys have signed."""
    audience: str = "torrentdist"
    """The audience that the tokens of pods must name."""
    kubelet_dir: str = "/var/lib/kubelet/pods"
    """The kubelet's directory of pods, below which volumes are mounted."""


class Config(Section, frozen=True, kw_only=True):
    client: ClientConfig = ClientConfig()
    master: MasterConfig = MasterConfig()
    supervisor: SupervisorConfig = SupervisorConfig()
    api: ApiConfig = ApiConfig()
    tls: TlsConfig = TlsConfig()
    trust: TrustConfig = TrustConfig()
    zookeeper: ZooKeeperConfig = ZooKeeperConfig()
    swarm: SwarmConfig = SwarmConfig()
    store: StoreConfig = StoreConfig()
    replication: ReplicationConfig = ReplicationConfig()
    distribution: DistributionConfig = DistributionConfig()
    requests: RequestsConfig = RequestsConfig()
    jobs: JobsConfig = JobsConfig()
    codedistributor: CodeDistributorConfig = CodeDistributorConfig()
    log: LogConfig = LogConfig()
    events: EventsConfig = EventsConfig()
    traces: TracesConfig = TracesConfig()
    metrics: MetricsConfig = MetricsConfig()
    kubernetes: KubernetesConfig = KubernetesConfig()

    @property
    def cluster_label(self) -> str:
        return self.metrics.cluster or self.trust.cluster or self.zookeeper.chroot.strip("/")

    @property
    def swarm_has_tls(self) -> bool:
        """Whether this daemon has a certificate of the swarm."""
        return self.swarm.tls in ("on", "both") or (not self.swarm.tls and self.tls.mode != "off")

    @property
    def swarm_has_both(self) -> bool:
        """Whether this daemon has a certificate of the swarm, and serves peers without one too."""
        return self.swarm.tls == "both" or (not self.swarm.tls and self.tls.mode == "both")

    @property
    def swarm_is_closed(self) -> bool:
        """Whether only peers with a certificate of the swarm can fetch from this daemon."""
        return self.swarm_has_tls and not self.swarm_has_both

    @property
    def client_swarm(self) -> SwarmConfig:
        """Returns the swarm settings for a command that is itself a peer. If a daemon is configured
        too, its port belongs to the daemon."""
        of_daemon = self.master != MasterConfig() or self.supervisor != SupervisorConfig()
        return msgspec.structs.replace(self.swarm, port=0) if of_daemon else self.swarm
