"""Bare libtorrent as a reference: each peer is a process with nothing of ours in it.

    bare_libtorrent.py seed KIND METAFILE HOME HOST:PORT
    bare_libtorrent.py fetch|wait KIND METAFILE HOME HOST:PORT PEER...

`seed` prints its port and serves HOME until stdin ends. `fetch` begins at once, and ends when it is
done. `wait` prints `ready` and begins when it reads a line; when it is done it leaves the file
`done` in HOME, and goes on seeding. KIND is a key of KINDS; `KIND:KEY=NUMBER,...` changes settings.

Always: a fetch is done when every byte is verified, written and synced. Every peer is told the
addresses of all others, which is more than a tracker could tell.
Never: import anything of ours, which would slow down the start.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from typing import Any

import libtorrent as lt

MIB = 1024 * 1024
_NO_UTP = {
    "enable_incoming_utp": False,
    "enable_outgoing_utp": False,
    "in_enc_policy": int(lt.enc_policy.disabled),
    "out_enc_policy": int(lt.enc_policy.disabled),
    "unchoke_slots_limit": -1,
    "tick_interval": 100,
}
STOCK: dict[str, Any] = {
    # Only what a lab without a way out needs. Everything about sharing is as libtorrent ships it.
    "enable_dht": False,
    "enable_lsd": False,
    "enable_upnp": False,
    "enable_natpmp": False,
    "alert_mask": lt.alert_category.status | lt.alert_category.storage | lt.alert_category.error,
}
TUNED: dict[str, Any] = {
    **STOCK,
    **_NO_UTP,
    "request_queue_time": 1,
    "connection_speed": 200,
    "torrent_connect_boost": 200,
    "min_reconnect_time": 1,
    # The result of `python -m bench.scale.tuning bare`.
    "whole_pieces_threshold": 0,
    "max_allowed_in_request_queue": 2,
    "predictive_piece_announce": 200,
}
LOOPBACK: dict[str, Any] = {
    **STOCK,
    **_NO_UTP,
    "allow_multiple_connections_per_ip": True,
    "send_buffer_watermark": 3 * MIB,
    "send_buffer_watermark_factor": 150,
    "max_out_request_queue": 1500,
    "max_allowed_in_request_queue": 4000,
    "max_queued_disk_bytes": 32 * MIB,
    "file_pool_size": 500,
}
PAIR: dict[str, Any] = {
    **LOOPBACK,
    "tick_interval": 25,
    "send_buffer_watermark": 2 * MIB,
    "send_buffer_low_watermark": MIB // 2,
    "request_queue_time": 1,
    "max_queued_disk_bytes": 4 * MIB,
    "aio_threads": 4,
    "hashing_threads": 2,
    "file_pool_size": 256,
}
KINDS = {"stock": STOCK, "tuned": TUNED, "loopback": LOOPBACK, "pair": PAIR}
"""`stock`: as libtorrent ships. `tuned`: for slow links. `loopback`: for unlimited links. `pair`:
the same with less memory."""


def new_session(kind: str, listen: str) -> lt.session:
    name, _, changed = kind.partition(":")
    numbers = {key: int(value) for key, value in (one.split("=") for one in changed.split(",") if one)}
    return lt.session(lt.session_params({**KINDS[name], **numbers, "listen_interfaces": listen}))  # type: ignore[call-overload]


def new_params(metafile: str, home: str) -> lt.add_torrent_params:
    with open(metafile, "rb") as source:
        params = lt.load_torrent_buffer(source.read())
    params.save_path = home
    return params


def begin(session: lt.session, params: lt.add_torrent_params, shown: Sequence[str]) -> lt.torrent_handle:
    """Adds a torrent. `shown`: certificate, key and DH parameters of an SSL torrent; else empty."""
    if not shown:
        return session.add_torrent(params)
    params.flags |= lt.torrent_flags.paused
    handle = session.add_torrent(params)
    handle.set_ssl_certificate_buffer(*shown)
    handle.resume()
    return handle


def seed(session: lt.session, params: lt.add_torrent_params, shown: Sequence[str] = ()) -> None:
    """Serves the files without hashing them again, until stdin ends."""
    assert params.ti is not None
    params.flags = lt.torrent_flags.seed_mode
    params.verified_pieces = [True] * params.ti.num_pieces()
    begin(session, params, shown)
    print(session.ssl_listen_port() if shown else session.listen_port(), flush=True)
    sys.stdin.read()


def fetch(session: lt.session, params: lt.add_torrent_params, peers: list[str], shown: Sequence[str] = ()) -> None:
    """Fetches from these peers (HOST:PORT), and returns when everything is on disk."""
    params.flags = lt.torrent_flags.no_verify_files
    params.peers = [(host, int(port)) for host, port in (peer.rsplit(":", 1) for peer in peers)]
    handle = begin(session, params, shown)
    finished = False
    while True:
        session.wait_for_alert(1000)
        for alert in session.pop_alerts():
            if isinstance(alert, lt.torrent_finished_alert):
                finished = True
                handle.flush_cache()
            elif isinstance(alert, lt.cache_flushed_alert) and finished:
                _sync(params.save_path)
                return


def _sync(home: str) -> None:
    fd = os.open(home, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
        raise OSError(ctypes.get_errno(), home)
    os.close(fd)


def main() -> None:
    role, kind, metafile, home, listen, *peers = sys.argv[1:]
    os.makedirs(home, exist_ok=True)
    session, params = new_session(kind, listen), new_params(metafile, home)
    if role == "seed":
        seed(session, params)
        return
    if role == "wait":
        print("ready", flush=True)
        sys.stdin.readline()
    fetch(session, params, peers)
    if role == "wait":
        open(os.path.join(home, "done"), "wb").close()
        sys.stdin.read()


if __name__ == "__main__":
    main()
    os._exit(0)  # the session's end takes time and is not measured
