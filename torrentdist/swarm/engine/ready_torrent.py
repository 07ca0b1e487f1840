"""Makes what libtorrent needs to take part in a swarm, which takes processor time for each file of the bundle.

Always: what it makes is used at once; nothing is written. It blocks: call it in a thread.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import libtorrent as lt

from torrentdist.bundle.metafile import Metafile
from torrentdist.swarm.engine import target_files, torrent_parameters


class ReadyTorrent(NamedTuple):
    params: lt.add_torrent_params
    empty: bool
    """Nothing of the content is there."""


def ready_to_seed(meta: Metafile, save_dir: Path) -> ReadyTorrent:
    return ReadyTorrent(torrent_parameters.seed_params(meta, save_dir), empty=False)


def ready_to_fetch(meta: Metafile, save_dir: Path) -> ReadyTorrent:
    empty = target_files.is_empty(save_dir / torrent_parameters.CONTENT)
    make = torrent_parameters.fetch_all_params if empty else torrent_parameters.fetch_params
    return ReadyTorrent(make(meta, save_dir), empty)
