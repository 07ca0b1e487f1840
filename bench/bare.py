"""The reference: bare libtorrent, tuned, with one process per peer.

`bare.py seed METAFILE HOME` or `bare.py fetch METAFILE HOME OWN_PORT PORT...`, all on loopback.

Always: a fetch ends when every byte is verified, written and synced.
Never: import anything of ours, which would slow down the start, or use worse settings than
libtorrent allows.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import libtorrent as lt

MIB = 1024 * 1024
TUNED: dict[str, Any] = {
    "alert_mask": lt.alert_category.status | lt.alert_category.storage | lt.alert_category.error,
    "enable_dht": False,
    "enable_lsd": False,
    "enable_upnp": False,
    "enable_natpmp": False,
    "enable_incoming_utp": False,
    "enable_outgoing_utp": False,
    "in_enc_policy": int(lt.enc_policy.disabled),
    "out_enc_policy": int(lt.enc_policy.disabled),
    "allow_multiple_connections_per_ip": True,
    "tick_interval": 100,
    "unchoke_slots_limit": -1,
    "send_buffer_watermark": 3 * MIB,
    "send_buffer_watermark_factor": 150,
    "max_out_request_queue": 1500,
    "max_allowed_in_request_queue": 4000,
    "max_queued_disk_bytes": 32 * MIB,
    "file_pool_size": 500,
}


def new_session(port: int = 0) -> lt.session:
    listen = {"listen_interfaces": f"127.0.0.1:{port}"}
    return lt.session(lt.session_params({**TUNED, **listen}))  # type: ignore[call-overload]


def new_params(metafile: str, home: str) -> lt.add_torrent_params:
    with open(metafile, "rb") as source:
        params = lt.load_torrent_buffer(source.read())
    params.save_path = home
    return params


def seed(metafile: str, home: str) -> None:
    """Offer what lies in `home`, without hashing it again, until stdin ends. Prints the port."""
    session = new_session()
    params = new_params(metafile, home)
    assert params.ti is not None
    params.flags = lt.torrent_flags.seed_mode
    params.verified_pieces = [True] * params.ti.num_pieces()
    session.add_torrent(params)
    print(session.listen_port(), flush=True)
    sys.stdin.read()


def fetch(metafile: str, home: str, own: int, ports: list[int]) -> None:
    os.mkdir(home)
    session = new_session(own)
    params = new_params(metafile, home)
    params.flags = lt.torrent_flags.no_verify_files
    params.peers = [("127.0.0.1", port) for port in ports]
    handle = session.add_torrent(params)
    finished = False
    while True:
        session.wait_for_alert(1000)
        for alert in session.pop_alerts():
            if isinstance(alert, lt.torrent_finished_alert):
                finished = True
                handle.flush_cache()
            elif isinstance(alert, lt.cache_flushed_alert) and finished:
                sync(home)
                return


def sync(home: str) -> None:
    fd = os.open(home, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
        raise OSError(ctypes.get_errno(), home)


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    if role == "seed":
        seed(rest[0], rest[1])
    else:
        fetch(rest[0], rest[1], int(rest[2]), [int(port) for port in rest[3:]])
    os._exit(0)  # Tearing the session down takes its time; nobody measures that.
