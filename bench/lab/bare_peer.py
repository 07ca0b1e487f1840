"""Bare libtorrent in the lab, as its users have it: `bare_peer.py seed|fetch stock|tuned METAFILE
HOME HOST PEERS`.

`tuned:KEY=NUMBER,...` changes some of the tuned settings.

Always: every peer knows every other from the start, which is more than a tracker could tell. A
fetch begins with a line on stdin, and prints `done` when every byte is verified and synced.
Never: import anything of ours.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import libtorrent as lt

PORT = 6881
STOCK: dict[str, Any] = {
    # Only what a lab without a way out needs; all that concerns sharing is as libtorrent ships it.
    "enable_dht": False,
    "enable_lsd": False,
    "enable_upnp": False,
    "enable_natpmp": False,
    "alert_mask": lt.alert_category.status | lt.alert_category.storage | lt.alert_category.error,
}
TUNED: dict[str, Any] = {
    **STOCK,
    "enable_incoming_utp": False,
    "enable_outgoing_utp": False,
    "in_enc_policy": int(lt.enc_policy.disabled),
    "out_enc_policy": int(lt.enc_policy.disabled),
    "unchoke_slots_limit": -1,
    "request_queue_time": 1,
    "tick_interval": 100,
    "connection_speed": 200,
    "torrent_connect_boost": 200,
    "min_reconnect_time": 1,
    # What `python -m bench.scale.tuning bare` found.
    "whole_pieces_threshold": 0,
    "max_allowed_in_request_queue": 2,
    "predictive_piece_announce": 200,
}
KINDS = {"stock": STOCK, "tuned": TUNED}


def settings(kind: str) -> dict[str, Any]:
    name, _, changed = kind.partition(":")
    return {
        **KINDS[name],
        **{key: int(value) for key, value in (pair.split("=") for pair in changed.split(",") if pair)},
    }


def main() -> None:
    role, kind, metafile, home, host, *peers = sys.argv[1:]
    session = lt.session(lt.session_params({**settings(kind), "listen_interfaces": f"{host}:{PORT}"}))  # type: ignore[call-overload]
    with open(metafile, "rb") as source:
        params = lt.load_torrent_buffer(source.read())
    params.save_path = home
    if role == "seed":
        assert params.ti is not None
        params.flags = lt.torrent_flags.seed_mode
        params.verified_pieces = [True] * params.ti.num_pieces()
        session.add_torrent(params)
        print("ready", flush=True)
        sys.stdin.readline()
        os._exit(0)
    os.makedirs(home, exist_ok=True)
    params.flags = lt.torrent_flags.no_verify_files
    params.peers = [(peer, PORT) for peer in peers]
    print("ready", flush=True)
    sys.stdin.readline()
    handle = session.add_torrent(params)
    finished = False
    while True:
        session.wait_for_alert(1000)
        for alert in session.pop_alerts():
            if isinstance(alert, lt.torrent_finished_alert):
                finished = True
                handle.flush_cache()
            elif isinstance(alert, lt.cache_flushed_alert) and finished:
                finished = False
                os.sync()
                open(os.path.join(home, "done"), "wb").close()


if __name__ == "__main__":
    main()
