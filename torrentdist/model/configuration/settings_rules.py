"""Rules that the values of a configuration must satisfy beyond their types.

Pure: no file and no network is used, so that a daemon and `config show` judge in the same way.
"""

import math
import re
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from torrentdist.model.access.envelope import parse_public_key_text
from torrentdist.model.configuration.config import Config, SupervisorConfig, TrustConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import master_id, supervisor_id

_PLUGIN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)
_PLUGIN_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*", re.ASCII)
TLS_MODES = ("off", "both", "mutual")
_USERS = re.compile(r"[A-Za-z_][\w.@-]*\$?|\d{1,10}|[1-9]\d{0,9}-\d{1,10}", re.ASCII)
_READERS = re.compile(r"owner|everyone|group ([A-Za-z_][\w.@-]*\$?|\d{1,10})", re.ASCII)
ISOLATION_MODES = ("", "required", "preferred", "none")
TRUST_MODES = ("off", "warn", "enforce")
_PATTERN = re.compile(r"[A-Za-z0-9._*?-]{1,128}", re.ASCII)
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("auto", "console", "json")


class Problem(NamedTuple):
    origin: str
    detail: str


class Rule(NamedTuple):
    holds: Callable[[Any], bool]
    sentence: str
    """What the value must be, as the end of a sentence after 'must be'."""


def _is_port(value: int) -> bool:
    return 0 <= value <= 65535


def _are_networks(values: list[str]) -> bool:
    try:
        return all(map(ip_network, values))
    except ValueError:
        return False


def _is_url(value: str) -> bool:
    try:
        parts = urlsplit(value)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        return right and parts.path in ("", "/") and not (parts.query or parts.fragment)
    except ValueError:
        return False


def _is_collector(value: str) -> bool:
    """Whether it is a URL that may have a path. One with a password is refused, because the log and
    `config show` print URLs."""
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return parts.username is None and _is_url(parts._replace(path="").geturl())


def _is_host_port(value: str) -> bool:
    try:
        parts = urlsplit(f"//{value}")
        return bool(parts.hostname) and bool(parts.port) and not parts.path
    except ValueError:
        return False


def _is_id(check: Callable[[str], str]) -> Callable[[str], bool]:
    def holds(value: str) -> bool:
        try:
            return not value or bool(check(value))
        except TorrentdistError:
            return False

    return holds


PORT = Rule(_is_port, "a port, 0 to 65535")
SIZE = Rule(lambda value: value >= 0, "0 or more")
COUNT = Rule(lambda value: value >= 1, "1 or more")
PERIOD = Rule(lambda value: math.isfinite(value) and value > 0, "a number of seconds above 0")
SECONDS = Rule(lambda value: math.isfinite(value) and value >= 0, "a number of seconds, 0 or more")
WAIT = Rule(
    lambda value: math.isfinite(value) and (value >= 0 or value == -1), "a number of seconds, or -1 for no limit"
)
NOT_EMPTY = Rule(bool, "given")

RULES: dict[str, Rule] = {
    "client.masters": Rule(
        lambda urls: bool(urls) and all(map(_is_url, urls)), "a list of http(s)://HOST:PORT URLs, without a path"
    ),
    "client.supervisor": Rule(
        lambda url: not url or _is_url(url), "a URL without a path, http(s)://HOST:PORT, or empty"
    ),
    "client.deadline_secs": PERIOD,
    "client.pod_gateway": Rule(_is_url, "a URL without a path, http(s)://HOST:PORT"),
    "master.id": Rule(_is_id(master_id), "a valid id: letters, digits, '.', '_' and '-'"),
    "master.data_dir": NOT_EMPTY,
    "master.upgrade_after_secs": SECONDS,
    "master.snapshot_changes": COUNT,
    "master.snapshot_secs": PERIOD,
    "master.forget_after_secs": PERIOD,
    "supervisor.id": Rule(_is_id(supervisor_id), "a valid id: letters, digits, '.', '_' and '-'"),
    "supervisor.data_dir": NOT_EMPTY,
    # Masters read no registration with more of these (records.py).
    "supervisor.slots": Rule(lambda slots: 0 <= slots <= 10_000, "from 0 to 10,000"),
    "supervisor.labels": Rule(
        lambda labels: len(labels) <= 100 and all(len(text) <= 300 for pair in labels.items() for text in pair),
        "at most 100 labels, whose names and values have at most 300 characters each",
    ),
    "supervisor.gateway_port": PORT,
    "supervisor.pod_port": PORT,
    "supervisor.port": PORT,
    "supervisor.log_keep_secs": SECONDS,
    "supervisor.log_bytes": COUNT,
    "supervisor.log_files": COUNT,
    "supervisor.read_stall_secs": PERIOD,
    "supervisor.seed_secs": WAIT,
    "api.listen": NOT_EMPTY,
    "api.port": PORT,
    "api.max_request_bytes": COUNT,
    "api.shutdown_secs": SECONDS,
    "tls.mode": Rule(lambda mode: mode in TLS_MODES, f"one of {', '.join(TLS_MODES)}"),
    "trust.cluster": Rule(_is_id(master_id), "a name of letters, digits, '.', '_' and '-'"),
    "zookeeper.servers": Rule(
        lambda servers: bool(servers) and all(map(_is_host_port, servers)), "a list of HOST:PORT"
    ),
    "zookeeper.chroot": Rule(lambda path: path.startswith("/") and "//" not in path, "a path that starts with /"),
    "zookeeper.session_timeout_secs": PERIOD,
    "zookeeper.operation_timeout_secs": PERIOD,
    "swarm.port": PORT,
    "swarm.tls_port": PORT,
    "swarm.upload_limit": SIZE,
    "swarm.download_limit": SIZE,
    "swarm.fetching_secs": PERIOD,
    "swarm.seeding_secs": PERIOD,
    "swarm.most_peers": Rule(lambda peers: 100 <= peers <= 10_000_000, "from 100 to 10,000,000"),
    "swarm.open_networks": Rule(_are_networks, "networks, such as 10.1.0.0/16"),
    "swarm.tls": Rule(lambda text: text in ("", "on", "off", "both"), "on, off, both or empty"),
    "swarm.nice": Rule(lambda nice: 0 <= nice <= 19, "from 0 to 19"),
    "store.limit_bytes": SIZE,
    "store.reserve_bytes": SIZE,
    "store.high": SIZE,
    "store.low": SIZE,
    "store.readable_by": Rule(
        lambda text: bool(_READERS.fullmatch(text)),
        'owner, everyone or group NAME, such as "group torrentdist-readers"',
    ),
    "store.scrub_secs": SECONDS,
    "replication.min_count": COUNT,
    "replication.max_wait_secs": WAIT,
    "replication.sync_secs": PERIOD,
    "replication.parallel_fetches": COUNT,
    "replication.catch_up_limit": SIZE,
    "replication.abandon_secs": PERIOD,
    "replication.lost_secs": PERIOD,
    "replication.tombstone_secs": PERIOD,
    "distribution.patience_secs": PERIOD,
    "requests.keep_secs": PERIOD,
    "jobs.user": Rule(
        lambda text: bool(_USERS.fullmatch(text)) and text not in ("0", "root"),
        "a user's name or number, or a range such as 20000-20999, and never root",
    ),
    "jobs.isolation": Rule(lambda mode: mode in ISOLATION_MODES, "required, preferred, none or empty"),
    "jobs.validator": Rule(lambda name: not name or bool(_PLUGIN.fullmatch(name)), "package.module:Class, or empty"),
    "jobs.silent_secs": Rule(
        lambda value: value == 0 or (math.isfinite(value) and value >= 5), "5 seconds or more, or 0 for never"
    ),
    "jobs.keep_secs": PERIOD,
    "codedistributor.class": Rule(
        lambda name: bool(_PLUGIN.fullmatch(name) or _PLUGIN_NAME.fullmatch(name)),
        "the name of an installed plug-in, or package.module:Class",
    ),
    "events.file_bytes": COUNT,
    "events.file_secs": PERIOD,
    "events.keep_bytes": SIZE,
    "events.keep_secs": SECONDS,
    "events.progress_secs": PERIOD,
    "traces.endpoint": Rule(
        lambda url: not url or _is_collector(url), "an http(s):// URL without a password, or empty"
    ),
    "traces.sample": Rule(lambda share: 0 <= share <= 1, "from 0 to 1"),
    "log.level": Rule(lambda level: level in LOG_LEVELS, f"one of {', '.join(LOG_LEVELS)}"),
    "log.format": Rule(lambda name: name in LOG_FORMATS, f"one of {', '.join(LOG_FORMATS)}"),
}


def value_of(config: Config, key: str) -> Any:
    """Returns the value of a dotted key."""
    section, _, name = key.partition(".")
    part = getattr(config, section)
    return getattr(part, "class_" if name == "class" else name)


def problems_of(config: Config) -> Iterator[tuple[str, str]]:
    """Yields every violated rule: the key at fault, and the problem."""
    for key, rule in RULES.items():
        value = value_of(config, key)
        if not rule.holds(value):
            yield key, f"{key} must be {rule.sentence}, not {value!r}"
    if config.store.low > config.store.high:
        yield "store.low", "store.low must be at most store.high"
    zookeeper = config.zookeeper
    if zookeeper.sasl and not zookeeper.auth_file:
        yield "zookeeper.sasl", "zookeeper.sasl needs zookeeper.auth_file, which holds user:password"
    if zookeeper.identities and (zookeeper.sasl or not zookeeper.auth_file or config.tls.mode != "mutual"):
        needs = 'tls.mode "mutual" and zookeeper.auth_file, without zookeeper.sasl'
        yield "zookeeper.identities", f"zookeeper.identities needs {needs}"
    for section, tls in (("client", config.client), ("tls", config.tls)):
        if bool(tls.certificate_file) != bool(tls.key_file):
            yield f"{section}.certificate_file", f"{section}.certificate_file and {section}.key_file go together"
    if config.tls.mode != "off":
        for name in ("ca_file", "certificate_file", "key_file"):
            if not getattr(config.tls, name):
                yield "tls.mode", f"tls.mode {config.tls.mode} needs tls.{name}"
    yield from _trust_problems(config.trust)
    yield from _gateway_problems(config.supervisor)
    if config.swarm.tls in ("on", "both") and config.tls.mode == "off":
        needs = "tls.mode mutual or both, whose masters issue the swarm's certificates"
        yield "swarm.tls", f"swarm.tls {config.swarm.tls} needs {needs}"
    if config.swarm.tls_port and config.swarm.tls_port == config.swarm.port:
        yield "swarm.tls_port", "swarm.tls_port and swarm.port are the same"
    if bool(zookeeper.tls_cert) != bool(zookeeper.tls_key):
        yield "zookeeper.tls_cert", "zookeeper.tls_cert and zookeeper.tls_key are given together or not at all"


def _gateway_problems(supervisor: SupervisorConfig) -> Iterator[tuple[str, str]]:
    users = supervisor.gateway_users
    for user, reads in users.items() if isinstance(users, dict) else ():
        for pattern in [] if isinstance(reads, bool) else [reads] if isinstance(reads, str) else reads:
            if not _PATTERN.fullmatch(pattern):
                key = "supervisor.gateway_users"
                yield key, f"{key}.{user}: {pattern!r} is neither true nor false nor a pattern of bundle ids"


def _trust_problems(trust: TrustConfig) -> Iterator[tuple[str, str]]:
    key = "trust.bundles"
    for pattern, rule in trust.bundles.items():
        if not _PATTERN.fullmatch(pattern):
            yield key, f"{key}: {pattern!r} is no pattern of bundle ids"
        if rule.mode not in TRUST_MODES:
            yield key, f"{key}.{pattern}: mode must be one of {', '.join(TRUST_MODES)}, not {rule.mode!r}"
        for text in rule.keys:
            try:
                parse_public_key_text(text)
            except ValueError as exc:
                yield (
                    key,
                    f"{key}.{pattern}: {text[:80]!r} is no public key: {exc}; `key generate` writes them to FILE.pub",
                )
    if not trust.cluster and any(rule.mode != "off" for rule in trust.bundles.values()):
        yield key, "trust.bundles needs trust.cluster, the cluster's name in signatures"
