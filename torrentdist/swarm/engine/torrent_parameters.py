"""A metafile of ours as libtorrent wants to be given it.

Always holds: every file lies at `<save_dir>/content/<path>`, whatever libtorrent would make of its name; libtorrent
drops the top directory of a torrent with one file, and replaces characters that it does not like.
Must not do: look at the disk.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import libtorrent as lt

from torrentdist.bundle.files import holes
from torrentdist.bundle.metafile import Metafile
from torrentdist.model.errors import TorrentdistError

CONTENT: Final = "content"


def seed_params(meta: Metafile, save_dir: Path) -> lt.add_torrent_params:
    """Content that is complete and trusted: nothing is read before a peer asks for it, and nothing is ever written."""
    params = _params(meta, save_dir)
    # Without verified_pieces, seed_mode hashes every piece once more before it is first sent.
    # With upload_mode, a damaged file can't make libtorrent fetch into published content.
    params.flags |= lt.torrent_flags.seed_mode | lt.torrent_flags.upload_mode
    assert params.ti is not None
    params.verified_pieces = [True] * params.ti.num_pieces()
    return params


def fetch_params(meta: Metafile, save_dir: Path) -> lt.add_torrent_params:
    """Content of which a part may be there: libtorrent hashes what it finds, then fetches the rest."""
    return _params(meta, save_dir)


def fetch_all_params(meta: Metafile, save_dir: Path) -> lt.add_torrent_params:
    """Content of which nothing is there but holes, if it has any (`have_pieces`; see holes.make_sparse): its peers are
    dialled at once, with no check before it."""
    params = _params(meta, save_dir)
    params.flags |= lt.torrent_flags.no_verify_files
    params.have_pieces = params.verified_pieces = holes.zero_pieces(meta)
    return params


def _params(meta: Metafile, save_dir: Path) -> lt.add_torrent_params:
    try:
        params = lt.load_torrent_buffer(meta.raw)
    except RuntimeError as exc:
        raise TorrentdistError("invalid_metafile", detail=f"libtorrent: {exc}") from exc
    assert params.ti is not None
    params.save_path = str(save_dir)
    params.renamed_files = _names(meta, params.ti.layout())
    params.trackers = []
    # Not auto_managed (it queues the 4th download and the 6th seed silently), and no source of peers but the directory.
    params.flags = (
        lt.torrent_flags.apply_ip_filter
        | lt.torrent_flags.update_subscribe
        | lt.torrent_flags.duplicate_is_error
        | lt.torrent_flags.disable_dht
        | lt.torrent_flags.disable_lsd
        | lt.torrent_flags.disable_pex
    )
    return params


def _names(meta: Metafile, layout: lt.file_storage) -> dict[int, str]:
    """Where every file lies. Its list has our files in our order, with pad files between them.

    Names that libtorrent would choose alike are named too: it renames those that differ in case only as it adds them.
    """
    pad = lt.file_storage.flag_pad_file
    indexes = [i for i in range(layout.num_files()) if not layout.file_flags(i) & pad]
    if [layout.file_size(i) for i in indexes] != [file.size for file in meta.files]:
        raise TorrentdistError("invalid_metafile", detail="libtorrent sees other files in it")
    return {i: f"{CONTENT}/{file.path}" for i, file in zip(indexes, meta.files, strict=True)}
