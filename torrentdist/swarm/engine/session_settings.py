"""The settings of our libtorrent session, each with the reason why it differs from the default.

Always: these settings are the same in every process of a cluster. Values that differ between hosts
are in EngineConfig, or depend on the number of processors.
Never: hold a value without a reason.
"""

import ipaddress
import os
import socket
from typing import Any, Final, NamedTuple

import libtorrent as lt
import msgspec

import torrentdist
from torrentdist.model.configuration.config import SwarmConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.swarm.engine.request_limits import MOST_ALLOWED, MOST_ASKED

PLUGINS: Final = ("smart_ban",)
"""All extensions of our sessions. Of libtorrent's defaults, ut_metadata would give the metafile to
everybody who knows the digest, and ut_pex would name peers that the directory has not named."""

MiB: Final = 1024 * 1024
SEND_BUFFER: Final = 2 * MiB
HIGHEST_RATE: Final = 2**31 - 1
"""The highest limit in bytes per second that libtorrent takes. It is more than an engine moves."""


class EngineConfig(msgspec.Struct, frozen=True):
    """The settings of one engine that differ between hosts."""

    listen_host: str = "127.0.0.1"
    """0.0.0.0 or :: listens on all addresses. A specific address is also the source of our own
    connections, because others accept us by the address in the directory."""
    port: int = 0
    """0 means any free port."""
    upload_limit: int = 0
    """Bytes per second, on loopback and private networks too. 0 means no limit."""
    download_limit: int = 0
    nice: int = 0
    """Nice value of libtorrent's threads, in addition to that of this process."""
    tls: bool = False
    """Peers prove to each other by certificate that they are members."""
    plain_too: bool = False
    """With `tls`: peers without TLS are served too, on `port`, and those with TLS on another."""
    tls_port: int = 0
    """The port for TLS, where both kinds of peers are served. 0 means any free port."""
    sends_at_once: bool = False
    """Accepted connections send small messages at once. Many hosts that share a link do better
    without: what is held back for an acknowledgement, 40 ms at most, travels with data."""


def engine_config(swarm: SwarmConfig, listen_host: str, *, tls: bool, plain_too: bool = False) -> EngineConfig:
    """Returns the engine's settings. `listen_host` is used if the configuration names no
    address."""
    return EngineConfig(
        listen_host=swarm.listen or listen_host,
        port=swarm.port,
        upload_limit=swarm.upload_limit,
        download_limit=swarm.download_limit,
        nice=swarm.nice,
        tls=tls,
        plain_too=plain_too,
        tls_port=swarm.tls_port,
    )


class Setting(NamedTuple):
    key: str
    value: int | bool | str
    reason: str


SETTINGS: Final[tuple[Setting, ...]] = (
    # Peers come only from the directory.
    Setting("enable_dht", False, "the directory knows the peers; nothing about a cluster leaves it"),
    Setting("enable_lsd", False, "no multicast into the host's network"),
    Setting("enable_upnp", False, "no port is opened on a router"),
    Setting("enable_natpmp", False, "no port is opened on a router"),
    Setting("enable_ip_notifier", False, "a changed interface must not reopen the listening socket on another port"),
    Setting("listen_system_port_fallback", False, "a port that is taken is an error, not another port"),
    Setting("max_retry_port_bind", 0, "a port that is taken is an error, not another port"),
    # Two hosts share one TCP connection, without encryption.
    Setting("enable_outgoing_utp", False, "uTP alone makes a loopback transfer 30 times slower"),
    Setting("enable_incoming_utp", False, "uTP alone makes a loopback transfer 30 times slower"),
    Setting("in_enc_policy", int(lt.enc_policy.disabled), "it is obfuscation and costs a handshake"),
    Setting("out_enc_policy", int(lt.enc_policy.disabled), "it is obfuscation and costs a handshake"),
    Setting("allow_multiple_connections_per_ip", True, "several peers of one host, as in dev, or behind one address"),
    Setting("allow_multiple_connections_per_pid", False, "two peers that dial each other keep one connection"),
    Setting("rate_limit_ip_overhead", False, "a limit means the bytes of the protocol, as an operator measures them"),
    # connecting
    Setting("min_reconnect_time", 1, "60 s by default; a peer that was not ready yet is dialled again at once"),
    Setting("listen_queue_size", 512, "5 by default; hundreds of hosts dial a seeder in the same moment"),
    Setting("connections_limit", 4000, "200 by default is less than the hosts of a cluster"),
    Setting("connection_speed", 200, "30 a second by default; a swarm of hundreds starts in one moment"),
    Setting("torrent_connect_boost", 200, "every peer that a new transfer is given is dialled at once"),
    Setting("smooth_connects", False, "dial at once, do not spread the dials over time"),
    Setting("handshake_timeout", 5, "a peer that accepts and says nothing holds a place for 5 s, not 10"),
    Setting("peer_connect_timeout", 5, "hosts of one network answer at once or are down"),
    Setting(
        "peer_timeout", 5, "60 s by default; the pieces of a host without power are asked of others within seconds"
    ),
    Setting("tick_interval", 100, "500 ms by default show in every connection; each tick costs whatever is idle too"),
    Setting("close_redundant_connections", False, "peers whose wanted pieces are complete will need each other later"),
    # sharing
    Setting("unchoke_slots_limit", -1, "every host of a cluster is wanted to be done; nobody has to earn its bytes"),
    Setting("send_redundant_have", True, "the default, and needed: a seeder learns by it that a peer is complete"),
    Setting("seed_time_limit", -1, "how long something is seeded is not for libtorrent to decide"),
    Setting("share_ratio_limit", -1, "how long something is seeded is not for libtorrent to decide"),
    Setting("initial_picker_threshold", 0, "4 by default: the first pieces are random ones, whatever their priority"),
    Setting("allowed_fast_set_size", 0, "5 by default: pieces that a receiver requests before it looks at priorities"),
    # keeping the link full
    Setting("send_buffer_watermark", SEND_BUFFER, "the disk is asked early enough to keep a 10 Gbit/s link full"),
    Setting("send_buffer_low_watermark", 512 * 1024, "the same for a transfer that has just begun"),
    Setting("send_buffer_watermark_factor", 150, "the same while the rate is still rising"),
    Setting("request_queue_time", 1, "3 by default; short queues let a receiver change its mind (measured 1.6 to 1.8)"),
    Setting("max_out_request_queue", MOST_ASKED, "500 by default are 8 MiB under way: too few at 1 GiB/s"),
    Setting("max_allowed_in_request_queue", MOST_ALLOWED, "never refuse what max_out_request_queue of others allows"),
    Setting(
        "whole_pieces_threshold", 0, "20 s by default: a fast peer is asked for neighbours, whatever their priority"
    ),
    # disk
    Setting(
        "max_queued_disk_bytes", 4 * MiB, "bounds the memory of a download, which overshoots it; more was not faster"
    ),
    Setting("file_pool_size", 256, "40 by default open and close the files of a bundle of small ones all the time"),
    Setting("checking_mem_usage", 256, "blocks of 16 KiB held while checking"),
    # limits, set high enough for large bundles
    Setting("max_piece_count", 1 << 21, "as many pieces as a metafile of ours may have"),
    Setting("alert_queue_size", 100_000, "2000 by default drop alerts when a master starts 500 seeds at once"),
)

ALERTS: Final = (
    lt.alert_category.error
    | lt.alert_category.status
    | lt.alert_category.storage
    | lt.alert_category.connect
    | lt.alert_category.ip_block
)
"""The alerts that we receive. None for each block or piece, which would keep the interpreter
busy."""


def listen_interface(host: str, port: int, *, tls: bool = False) -> str:
    kind = "s" if tls else ""
    return f"[{host}]:{port}{kind}" if ":" in host else f"{host}:{port}{kind}"


def port_in_use(config: EngineConfig, detail: str) -> TorrentdistError:
    address = listen_interface(config.listen_host, config.port)
    return TorrentdistError("port_in_use", what="the swarm", address=address, detail=detail)


def user_agent(port: int) -> str:
    """Returns a client name that contains our listening port. The remote port of an accepted
    connection does not reveal it."""
    return f"torrentdist/{torrentdist.__version__} ({port})"


def port_of_user_agent(client: bytes) -> int | None:
    """Returns the listening port in a peer's client name, or None."""
    name, _, rest = client.partition(b" (")
    digits = rest.removesuffix(b")")
    return int(digits) if name.startswith(b"torrentdist/") and digits.isdigit() and len(digits) < 6 else None


def one_port(host: str) -> int:
    """Returns a free port for all addresses of this machine, or 0 for a specific address, where
    libtorrent finds one.

    Given port 0 on all addresses, libtorrent takes a different port for each address, and reports
    only one of them.
    """
    address = ipaddress.ip_address(host)
    if not address.is_unspecified:
        return 0
    with socket.create_server((host, 0), family=socket.AF_INET6 if address.version == 6 else socket.AF_INET) as probe:
        return int(probe.getsockname()[1])


def disk_threads(processors: int) -> dict[str, int]:
    """Returns the numbers of threads for the disk. The defaults are 10 and 1.

    libtorrent wakes all of them for every block. With 48 hosts on two processors, the disk threads
    of each host woke 2,900 times with 4 and 2 threads, and 1,500 times with 2 and 1. A single I/O
    thread would wait for a hanging disk. A single hashing thread is too slow for checking old
    content where there are more processors.
    """
    return {"aio_threads": min(max(2, processors), 4), "hashing_threads": 2 if processors >= 4 else 1}


def session_pack(config: EngineConfig, host: str) -> dict[str, Any]:
    """Returns the settings of a session that listens on the address `host`."""
    port = config.port or one_port(host)
    pack: dict[str, Any] = {setting.key: setting.value for setting in SETTINGS}
    pack |= disk_threads(len(os.sched_getaffinity(0)))
    pack["alert_mask"] = ALERTS
    pack["user_agent"] = user_agent(port)
    pack["listen_interfaces"] = listen_interface(host, port, tls=config.tls and not config.plain_too)
    if config.plain_too:
        pack["listen_interfaces"] += f",{listen_interface(host, config.tls_port or one_port(host), tls=True)}"
    if not ipaddress.ip_address(host).is_unspecified:
        pack["outgoing_interfaces"] = host
    if config.upload_limit:
        # libtorrent waits until the limit allows everything in the buffer: more than one tick's
        # data would be sent in bursts.
        tick = min(SEND_BUFFER, max(32 * 1024, config.upload_limit // 16))
        pack["send_buffer_watermark"] = pack["send_buffer_low_watermark"] = tick
    pack["upload_rate_limit"] = usable_rate(config.upload_limit)
    pack["download_rate_limit"] = usable_rate(config.download_limit)
    return pack


def usable_rate(rate: int) -> int:
    """Returns a limit as libtorrent takes it. It takes a higher one for none, or refuses it."""
    return min(rate, HIGHEST_RATE)


def new_session(pack: Any) -> lt.session:
    """Opens a session with our extensions alone.

    Only this way of opening one leaves out libtorrent's default extensions. Disk I/O is its
    default, on Linux pread. mmap would count a whole bundle as resident memory, and posix would let
    a slow disk stall every peer.
    """
    session: lt.session = lt.session(pack, flags=0)
    for plugin in PLUGINS:
        session.add_extension(plugin)
    return session


def limit_everybody(session: lt.session) -> None:
    """Makes the session's rate limits apply to every address.

    By default libtorrent exempts loopback and private addresses.
    """
    everybody = 1 << session.global_peer_class_id
    classes = lt.ip_filter()
    classes.add_rule("0.0.0.0", "255.255.255.255", everybody)
    classes.add_rule("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", everybody)
    session.set_peer_class_filter(classes)
