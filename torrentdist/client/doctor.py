"""Examines a host and its cluster from outside, with all checks running at the same time.

Always: it ends within a minute, even if everything hangs. A check that fails itself is a finding.
Never: change anything, judge (diagnosis.py does), or use a ZooKeeper client. It asks a server with
four letter words, and zookeeper_probe.py asks one more question.
Longer than most files: every question that the doctor asks is one small function.
"""

import asyncio
import grp
import os
import pwd
import random
import re
import resource
import ssl
import stat
import time
from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from torrentdist import __version__
from torrentdist.client import diagnosis, tls_diagnosis, trust_diagnosis
from torrentdist.client.client_access import access_of, only_https
from torrentdist.client.diagnosis import DiskFacts, MasterFacts, ServerFacts
from torrentdist.client.zookeeper_probe import NotUnderstood, TreeAccess, ask_access
from torrentdist.http.access import anonymously
from torrentdist.http.api_calls import Broken, Request, ask
from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import HttpError
from torrentdist.model.access.token_messages import QuotaView, TokenState, TokenView
from torrentdist.model.configuration.config import Config, TracesConfig, ZooKeeperConfig
from torrentdist.model.configuration.settings import DEFAULT_ORIGIN
from torrentdist.model.errors import EXIT_UNAVAILABLE, EXIT_USAGE, TorrentdistError
from torrentdist.model.policies.policy_messages import DistributionStatusView, RetentionView
from torrentdist.model.wire.cluster_messages import ClusterView, HealthView
from torrentdist.model.wire.doctor_views import Finding, IsolationView, Verdict
from torrentdist.model.wire.fleet_messages import HostProblem
from torrentdist.model.wire.ha_views import DialView, MasterState, RoleView
from torrentdist.model.wire.view import decode_json
from torrentdist.model.wording import cause_text
from torrentdist.swarm.libtorrent_build import libtorrent_build

T = TypeVar("T")

PROBE_SECS = 2.0
ISOLATION_SECS = 8.0
"""Longer than the other answers, because the supervisor asks its launcher."""
_UNSAID = ("", DEFAULT_ORIGIN)
ALL_SECS = 45.0
MOST_QUOTAS = 64
MOST_PORTS = 64
"""A sample of a large fleet reveals as much as all of it."""
SPARK_PROGRAMS = (
    b"org.apache.spark.executor.",
    b"org.apache.spark.deploy.worker.",
    b"org.apache.hadoop.yarn.server.nodemanager.",
)
"""Parts of the commands of executors, and of what starts them."""


class _Address(msgspec.Struct):
    """The part of a daemon's daemon.json that the doctor uses."""

    url: str
    swarm_port: int


async def examine(config: Config, origins: Mapping[str, str]) -> list[Finding]:
    """Returns all findings, causes first. The configuration shows what this host is: a client, a
    supervisor or a master."""
    given = {key.partition(".")[0] for key, origin in origins.items() if origin != DEFAULT_ORIGIN}
    config = await asyncio.to_thread(_with_own_master, config, origins)
    findings = [Finding(check="configuration", detail="loads, and every value is valid")]
    findings += secrets(config) + await asyncio.to_thread(tls_diagnosis.certificates, config) + host(config, given)
    findings += trust_diagnosis.judge_trust(config.trust)
    findings += await traces(config.traces)
    findings.append(Finding(check="libtorrent", detail=await asyncio.to_thread(libtorrent_build)))
    try:
        async with asyncio.timeout(ALL_SECS):
            async with _client(config) as http:
                masters = await _masters(http, config)
                if given & {"zookeeper", "master"}:
                    findings += await zookeeper(config.zookeeper, sessions(config, origins, masters))
                findings += _judged(masters) + await _tokens(http, masters) + await _policies(http, masters)
                findings += await _ports(http, config, given, masters)
    except TimeoutError:
        hint = "Look for hosts that drop packets, or run doctor with fewer client.masters."
        findings.append(diagnosis.failure("time", "", f"not done within {ALL_SECS:g} s", hint, EXIT_UNAVAILABLE))
    return findings + await supervisor(config, origins)


def _with_own_master(config: Config, origins: Mapping[str, str]) -> Config:
    """Asks as the master on this host if the configuration is a master's. If it names no masters,
    asks that master, which knows the others.
    """
    if origins.get("master.data_dir", DEFAULT_ORIGIN) == DEFAULT_ORIGIN:
        return config
    own = _address(Path(config.master.data_dir))
    said = origins.get("client.masters", DEFAULT_ORIGIN) != DEFAULT_ORIGIN
    if own is None and not said:
        return config
    token = config.client.token_file or config.api.token_file
    client = msgspec.structs.replace(
        config.client,
        masters=config.client.masters if said or own is None else [own.url],
        token_file=token,
        ca_file=config.client.ca_file or config.tls.ca_file,
        certificate_file=config.client.certificate_file or config.tls.certificate_file,
        key_file=config.client.key_file or config.tls.key_file,
        token_in_the_clear=config.client.token_in_the_clear or config.api.insecure_listen,
    )
    return msgspec.structs.replace(config, client=client)


def _address(data_dir: Path) -> _Address | None:
    """Returns the address of the daemon that runs in this directory, or ran there last."""
    try:
        return decode_json((data_dir / "daemon.json").read_bytes(), _Address)
    except (OSError, msgspec.MsgspecError):
        return None


# this host


def secrets(config: Config) -> list[Finding]:
    files = {
        "client.token_file": config.client.token_file,
        "api.token_file": config.api.token_file,
        "tls.key_file": config.tls.key_file,
        "client.key_file": config.client.key_file,
        "zookeeper.auth_file": config.zookeeper.auth_file,
        "zookeeper.tls_key": config.zookeeper.tls_key,
    }
    return [_secret(key, Path(file).expanduser()) for key, file in files.items() if file]


def _secret(key: str, file: Path) -> Finding:
    try:
        mode = file.stat().st_mode
    except OSError as exc:
        detail = f"{file}: {exc.strerror}"
        return diagnosis.failure("secrets", key, detail, "Put the secret there, or correct the path.", EXIT_USAGE)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        detail = f"{file}: other users can access it (mode {stat.S_IMODE(mode):04o})"
        return diagnosis.failure("secrets", key, detail, f"chmod 600 {file}", EXIT_USAGE)
    return Finding(check="secrets", subject=key, detail=f"{file}: only its owner can access it")


def host(config: Config, given: Iterable[str]) -> list[Finding]:
    findings = [diagnosis.judge_open_files(*resource.getrlimit(resource.RLIMIT_NOFILE))]
    findings += [diagnosis.judge_disk(_disk(path), config.store.reserve_bytes) for path in _data_dirs(config, given)]
    return findings


def _data_dirs(config: Config, given: Iterable[str]) -> list[Path]:
    dirs = {"master": config.master.data_dir, "supervisor": config.supervisor.data_dir}
    return [Path(path) for role, path in dirs.items() if role in given]


def _disk(path: Path) -> DiskFacts:
    """Returns facts about the disk that holds, or will hold, this directory."""
    # Path.exists() fails in a directory that is closed to this user.
    there = next((place for place in (path, *path.absolute().parents) if os.path.exists(place)), Path("/"))
    found = os.statvfs(there)
    return DiskFacts(
        path=str(path),
        free=found.f_bavail * found.f_frsize,
        total=found.f_blocks * found.f_frsize,
        free_inodes=found.f_favail if found.f_files else None,
        writable=os.access(there, os.W_OK | os.X_OK),
    )


async def traces(config: TracesConfig) -> list[Finding]:
    """Sends the collector no spans at all, which it takes like any other number."""
    if not config.endpoint:
        return []
    headers, trouble = {"Content-Type": "application/x-protobuf"}, ""
    async with Http() as http:
        try:
            answer = await asyncio.wait_for(http.post(config.url, headers=headers), PROBE_SECS)
            if answer.status_code >= 400:
                trouble = f"the collector answers {answer.status_code}"
        except (HttpError, TimeoutError) as exc:
            trouble = f"the collector does not answer: {cause_text(exc) or f'not within {PROBE_SECS:g} s'}"
    return diagnosis.judge_traces(config.endpoint, is_installed=_sends_traces(), trouble=trouble)


def _sends_traces() -> bool:
    """Whether the packages that send traces are installed."""
    try:
        return bool(version("opentelemetry-exporter-otlp-proto-http")) and bool(version("opentelemetry-sdk"))
    except PackageNotFoundError:
        return False


# ZooKeeper


def sessions(config: Config, origins: Mapping[str, str], masters: Iterable[MasterFacts]) -> set[float]:
    """Returns the session timeouts that daemons request: this host's, if its configuration is a
    daemon's, and otherwise those that the masters report. A client's default says nothing about
    daemons."""
    own = config.zookeeper.session_timeout_secs
    daemons = {key.partition(".")[0] for key, origin in origins.items() if origin != DEFAULT_ORIGIN}
    if daemons & {"master", "supervisor"} or origins.get("zookeeper.session_timeout_secs", "") not in _UNSAID:
        return {own}
    return {m.role.session_secs for m in masters if m.role is not None and m.role.session_secs is not None}


async def zookeeper(config: ZooKeeperConfig, sessions: Collection[float]) -> list[Finding]:
    servers = await asyncio.gather(*(_server(address, config) for address in config.servers))
    findings = diagnosis.judge_servers(servers)
    for server in servers:
        if server.mode:
            findings += diagnosis.judge_limits(server, sessions)
    serving = [server.address for server in servers if server.mode]
    return [*findings, diagnosis.judge_access(config, await _tree_access(serving[0], config) if serving else None)]


async def _server(address: str, config: ZooKeeperConfig) -> ServerFacts:
    try:
        mode = diagnosis.parse_mode(await _four_letters(address, "srvr", config))
        settings = diagnosis.parse_settings(await _four_letters(address, "conf", config))
        return ServerFacts(address, mode, settings)
    except (OSError, ValueError, TimeoutError) as exc:
        return ServerFacts(address, detail=cause_text(exc) or f"no answer within {PROBE_SECS:g} s")


async def _four_letters(address: str, word: str, config: ZooKeeperConfig) -> str:
    async with _connected(address, config) as (reader, writer):
        writer.write(word.encode())
        return (await reader.read(-1)).decode(errors="replace")


async def _tree_access(address: str, config: ZooKeeperConfig) -> TreeAccess | None:
    """Returns None if the access cannot be determined."""
    try:
        async with _connected(address, config) as (reader, writer):
            return await ask_access(reader, writer, config.chroot)
    except (OSError, TimeoutError, NotUnderstood):
        return None


@asynccontextmanager
async def _connected(
    address: str, config: ZooKeeperConfig
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    name, _, port = address.rpartition(":")
    async with asyncio.timeout(PROBE_SECS):
        context = _tls(config) if config.tls_ca else None
        reader, writer = await asyncio.open_connection(name.strip("[]"), int(port), ssl=context)
        try:
            yield reader, writer
        finally:
            writer.close()


def _tls(config: ZooKeeperConfig) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=config.tls_ca)
    if config.tls_cert:
        context.load_cert_chain(config.tls_cert, config.tls_key or None)
    return context


# the cluster


@asynccontextmanager
async def _client(config: Config) -> AsyncIterator[Http]:
    try:
        access = access_of(config.client)
    except TorrentdistError:
        access = anonymously  # secrets() and certificates() report this error.
    async with Http(access=access, only_https=only_https(config.client)) as http:
        yield http


async def _masters(http: Http, config: Config) -> list[MasterFacts]:
    """Returns the configured masters and those that they know."""
    urls = list(dict.fromkeys(url.rstrip("/") for url in config.client.masters))
    masters = list(await asyncio.gather(*(_master(http, url) for url in urls)))
    heard = {m.role.id for m in masters if m.role}
    learned = {m.id: m.url for f in masters if f.cluster for m in f.cluster.masters if m.id not in heard}
    return [*masters, *await asyncio.gather(*(_master(http, url) for url in learned.values() if url not in urls))]


def _judged(masters: list[MasterFacts]) -> list[Finding]:
    findings = [finding for master in masters for finding in diagnosis.judge_master(master)]
    findings += diagnosis.judge_leader(masters)
    findings += diagnosis.judge_versions(__version__, masters)
    pictures = [m.cluster for m in masters if m.cluster is not None]
    # Prefer a view that is up to date.
    pictures.sort(key=lambda picture: (picture.stale_secs is not None, -picture.epoch))
    findings += tls_diagnosis.judge_transport(pictures)
    # Only the leader hears heartbeats.
    leading = [m.cluster for m in masters if m.cluster and m.role and m.role.state is MasterState.LEADER]
    for newest in pictures[:1]:
        findings += diagnosis.judge_records(newest) + diagnosis.judge_attention((leading or pictures)[0])
    return findings


async def _master(http: Http, url: str) -> MasterFacts:
    try:
        # This opens the connection, so that the next answer measures the clock.
        await _get(http, url, "/v1/role", RoleView)
        sent, began = time.time(), time.monotonic()
        role = await _get(http, url, "/v1/role", RoleView)
        half = (time.monotonic() - began) / 2
        picture, roles = await asyncio.gather(
            _get(http, url, "/v1/cluster", ClusterView), _get(http, url, "/v1/roles", list[RoleView])
        )
    except TorrentdistError as error:
        return MasterFacts(url, error=error)
    offset = role.now - (sent + half)
    return MasterFacts(url, None, role, picture, tuple(roles), offset, half)


async def _get(http: Http, url: str, path: str, kind: type[T], **params: str) -> T:
    try:
        return await ask(http, url, Request("GET", path, params=params, timeout=PROBE_SECS), kind)
    except Broken as exc:
        raise TorrentdistError("master_unreachable", url=url, detail=exc.detail) from exc


async def _tokens(http: Http, masters: list[MasterFacts]) -> list[Finding]:
    """Looks at what tokens may read, and at their quotas, as one master knows them. One of an older
    release does not say which tokens have a quota."""
    url = next((master.url for master in masters if master.cluster is not None), None)
    if url is None:
        return []
    try:
        tokens = await _get(http, url, "/v1/tokens", list[TokenView])
        limited = [token.name for token in tokens if token.has_quota and token.state is TokenState.USABLE]
        paths = [f"/v1/tokens/{name}/quota" for name in limited[:MOST_QUOTAS]]
        quotas = await asyncio.gather(*(_get(http, url, path, QuotaView) for path in paths))
        return [diagnosis.judge_reading(tokens), *diagnosis.judge_quotas(quotas)]
    except TorrentdistError as error:
        return [diagnosis.failure("quotas", url, f"not known: {error.message}", error.hint, error.exit_code)]


async def _policies(http: Http, masters: list[MasterFacts]) -> list[Finding]:
    """Looks at distributions and retention rules, as one master knows them. One of an older release
    knows none."""
    url = next((master.url for master in masters if master.cluster is not None), None)
    if url is None:
        return []
    try:
        distributions = await _get(http, url, "/v1/waves", list[DistributionStatusView])
        rules = await _get(http, url, "/v1/retention", list[RetentionView])
    except TorrentdistError as error:
        if error.code == "not_found":
            return []
        return [diagnosis.failure("distributions", url, f"not known: {error.message}", error.hint, error.exit_code)]
    return diagnosis.judge_distributions(distributions, time.time()) + diagnosis.judge_retention(rules)


async def _ports(http: Http, config: Config, given: Iterable[str], masters: list[MasterFacts]) -> list[Finding]:
    """Checks swarm ports in both directions."""
    targets: dict[str, tuple[str, int]] = {}
    for facts in masters:
        if facts.cluster is not None:
            targets |= {m.id: (m.host, m.swarm_port) for m in facts.cluster.masters if m.swarm_port}
            targets |= {s.id: (s.host, s.swarm_port) for s in facts.cluster.supervisors if s.swarm_port}
    chosen = random.sample(sorted(targets), min(MOST_PORTS, len(targets)))
    tried = await asyncio.gather(*(_why_closed(*targets[id_]) for id_ in chosen))
    findings = diagnosis.judge_ports(dict(zip(chosen, tried, strict=True)))
    urls = [facts.url for facts in masters if facts.error is None]
    async with _own_port(config, given) as port:
        asked = await asyncio.gather(*(_way_back(http, url, port) for url in urls))
    answers = {url: answer for url, answer in zip(urls, asked, strict=True) if answer is not None}
    return findings + diagnosis.judge_way_back(answers)


async def _why_closed(name: str, port: int) -> str:
    try:
        async with asyncio.timeout(PROBE_SECS):
            _, writer = await asyncio.open_connection(name, port)
    # A record may name what can be no host, or no port.
    except (OSError, ValueError, OverflowError, TimeoutError) as exc:
        return cause_text(exc) or f"{name}:{port}: no connection within {PROBE_SECS:g} s"
    writer.close()
    return ""


async def _way_back(http: Http, url: str, port: int) -> DialView | None:
    try:
        return await _get(http, url, "/v1/dial", DialView, port=str(port))
    except TorrentdistError:
        return None  # The master answered a moment ago, so the other checks say more.


@asynccontextmanager
async def _own_port(config: Config, given: Iterable[str]) -> AsyncIterator[int]:
    """Yields the swarm port of a daemon on this host or, without one, a port that is open inside
    this block."""
    for directory in _data_dirs(config, given):
        if (address := _address(directory)) is not None:
            yield address.swarm_port
            return
    local = all(urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost") for url in config.client.masters)
    listen = config.swarm.listen or ("127.0.0.1" if local else "0.0.0.0")
    try:
        server = await asyncio.start_server(lambda _, writer: writer.close(), listen, config.swarm.port)
    except OSError:
        yield config.swarm.port  # Another process already listens there.
        return
    async with server:
        yield server.sockets[0].getsockname()[1]


# the supervisor


async def supervisor(config: Config, origins: Mapping[str, str]) -> list[Finding]:
    url = config.client.supervisor
    if not url:
        return []
    async with Http() as http:
        try:
            health = await _ready(http, url)
        except (Broken, TorrentdistError) as exc:
            if origins.get("client.supervisor", DEFAULT_ORIGIN) == DEFAULT_ORIGIN:
                return [
                    Finding(check="supervisor", subject=url, detail="none runs on this host, and none is configured")
                ]
            error = TorrentdistError("supervisor_unreachable", url=url, detail=cause_text(exc))
            return [diagnosis.of_error("supervisor", url, error)]
    hint = "See this supervisor's log."
    failing = [
        diagnosis.failure("supervisor", url, f"{check}: {why}", hint, EXIT_UNAVAILABLE)
        for check, why in sorted(health.failing.items())
    ]
    ready = [] if failing else [Finding(check="supervisor", subject=url, detail="ready", verdict=Verdict.OK)]
    return failing + ready + await _isolation(url) + await _stuck(url)


async def _isolation(url: str) -> list[Finding]:
    """Returns nothing for a supervisor whose release is too old to answer."""
    async with Http() as http:
        try:
            answer = await asyncio.wait_for(http.get(f"{url}/v1/host/isolation"), ISOLATION_SECS)
            said = decode_json(answer.content, IsolationView)
            users = await asyncio.to_thread(_spark_users)
            findings = [diagnosis.judge_isolation(url, said), *diagnosis.judge_readers(url, said.readers)]
            return findings + diagnosis.judge_spark_users(url, said.readers, {said.own_user, 0}, users)
        except (HttpError, TimeoutError, msgspec.MsgspecError):
            return []


def _spark_users() -> dict[int, frozenset[str]]:
    """Returns the users of this host's Spark and YARN daemons and executors, with their groups by
    name and number."""
    users = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError, ValueError, IndexError):
            command = (status.parent / "cmdline").read_bytes()
            if any(name in command for name in SPARK_PROGRAMS):
                users.add(int(re.findall(r"(?m)^Uid:\s+(\d+)", status.read_text())[0]))
    found = {}
    for user in users:
        with suppress(KeyError):  # a user of a container
            known = pwd.getpwuid(user)
            groups = os.getgrouplist(known.pw_name, known.pw_gid)
            named = {group.gr_name for group in grp.getgrall() if group.gr_gid in groups}
            found[user] = frozenset(named | {str(group) for group in groups})
    return found


async def _stuck(url: str) -> list[Finding]:
    """Returns a finding for each bundle that does not arrive on this host."""
    async with Http() as http:
        try:
            problems = await _get(http, url, "/v1/host/problems", list[HostProblem])
        # The supervisor belongs to another release; the findings above say what matters.
        except (Broken, TorrentdistError):
            return []
    hint = "`torrentdist bundle show` names its holders; the fetch goes on by itself when one is back."
    return [
        diagnosis.warning("supervisor", url, f"bundle {problem.bundle} does not arrive: {problem.reason}", hint)
        for problem in problems
    ]


async def _ready(http: Http, url: str) -> HealthView:
    """Returns the daemon's health. A daemon that is not ready answers 503 with the same body."""
    try:
        response = await asyncio.wait_for(http.get(f"{url}/readyz"), PROBE_SECS)
        return decode_json(response.content, HealthView)
    except (HttpError, TimeoutError, msgspec.MsgspecError) as exc:
        raise Broken(cause_text(exc) or f"no answer within {PROBE_SECS:g} s", sent=True) from exc


async def timed(work: Awaitable[list[Finding]]) -> tuple[list[Finding], float]:
    began = time.monotonic()
    return await work, round(time.monotonic() - began, 3)
