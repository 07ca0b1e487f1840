"""Prepares a transfer: what libtorrent is told about the bundle, and the files that it will write.

Always: every file is at `<save_dir>/content/<path>`, and every pack of small files at
`<save_dir>/packs/<number>`. libtorrent alone would drop the top directory of a torrent with one
file, and replace characters. Existing files are only made writable and
truncated to their size, so that every good byte is kept.
Never: follow a symlink, or change a file that the metafile does not name.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import libtorrent as lt

from torrentdist.bundle.files import holes
from torrentdist.bundle.metafile import CONTENT, Metafile
from torrentdist.model.errors import TorrentdistError


class ReadyTorrent(NamedTuple):
    """What the engine needs in order to join a swarm. Use it at once."""

    params: lt.add_torrent_params
    is_checked: bool
    """Whether the pieces on disk are known. Otherwise libtorrent hashes what it finds."""
    needs_files: bool
    """Whether `prepare_files` has to run before libtorrent starts."""
    local: int | None
    """Bytes that are on disk and verified. None: libtorrent will find out."""


def ready_to_seed(meta: Metafile, save_dir: Path) -> ReadyTorrent:
    """Prepares complete, trusted content: nothing is read before a peer asks, and nothing is ever
    written.

    Takes time for each file: call it in a thread.
    """
    params = _params(meta, save_dir)
    # Without verified_pieces, seed_mode hashes every piece again before sending it for the first
    # time. With upload_mode, a damaged file cannot make libtorrent fetch into published content.
    params.flags |= lt.torrent_flags.seed_mode | lt.torrent_flags.upload_mode
    assert params.ti is not None
    params.verified_pieces = [True] * params.ti.num_pieces()
    return ReadyTorrent(params, is_checked=True, needs_files=False, local=meta.size)


def ready_to_fetch(meta: Metafile, save_dir: Path, have: Sequence[bool] | None = None) -> ReadyTorrent:
    """Prepares content with missing pieces. Takes time for each file: call it in a thread.

    `have` tells which pieces on disk have been verified; they are neither fetched nor hashed again.
    None means unknown. Then an empty directory has only the pieces of zeros, which `prepare_files`
    creates as holes, and libtorrent hashes whatever else it finds.
    """
    params = _params(meta, save_dir)
    is_empty = is_new(save_dir)
    if have is None and is_empty:
        have = holes.zero_pieces(meta)
    local = None
    if have is not None:
        local = _bytes_in(meta, have)
        params.flags |= lt.torrent_flags.no_verify_files
        params.have_pieces = params.verified_pieces = list(have)
    return ReadyTorrent(params, is_checked=have is not None, needs_files=not is_empty or bool(have), local=local)


def _bytes_in(meta: Metafile, have: Sequence[bool]) -> int:
    """Returns how many bytes of the bundle these pieces hold."""
    total, piece = 0, 0
    for file in meta.wire_files if have else ():
        for start in range(0, file.size, meta.piece_length):
            total += min(meta.piece_length, file.size - start) if have[piece] else 0
            piece += 1
    return total


def prepare_files(meta: Metafile, save_dir: Path) -> None:
    """Prepares the files for writing. In an empty directory, files of zeros are created as holes.

    Blocks for a time that grows with the number of files.
    """
    if is_new(save_dir):
        holes.make_sparse(meta, save_dir / CONTENT)
    else:
        make_writable(meta, save_dir)


def is_new(save_dir: Path) -> bool:
    """Whether nothing has arrived there yet."""
    return is_empty_directory(save_dir / CONTENT) and is_empty_directory(save_dir / "packs")


def is_empty_directory(content: Path) -> bool:
    """Whether the directory is empty or missing."""
    try:
        with os.scandir(content) as entries:
            return next(entries, None) is None
    except FileNotFoundError:
        return True


def make_writable(meta: Metafile, save_dir: Path) -> None:
    """Makes the bundle's files writable, truncates those that are too long, and unlinks anything
    that is no regular file."""
    known: set[Path] = set()
    for file in meta.wire_files:
        path = save_dir / file.place
        _open_directories(save_dir, path.parent, known)
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(found.st_mode):
            path.unlink()
            continue
        if found.st_nlink > 1 and found.st_size == file.size:
            continue  # It is complete, and belongs to other bundles too.
        if found.st_mode & 0o600 != 0o600:
            path.chmod(stat.S_IMODE(found.st_mode) | 0o600)
        if found.st_size > file.size:
            os.truncate(path, file.size)


def _open_directories(top: Path, directory: Path, known: set[Path]) -> None:
    """Makes `directory` and its parents, below `top`, writable if they exist."""
    if directory in known or directory == top:
        return
    known.add(directory)
    _open_directories(top, directory.parent, known)
    try:
        found = os.lstat(directory)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        directory.unlink()
    elif found.st_mode & 0o700 != 0o700:
        directory.chmod(stat.S_IMODE(found.st_mode) | 0o700)


def _params(meta: Metafile, save_dir: Path) -> lt.add_torrent_params:
    try:
        params = lt.load_torrent_buffer(meta.raw)
    except RuntimeError as exc:
        raise TorrentdistError("invalid_metafile", detail=f"libtorrent: {exc}") from exc
    assert params.ti is not None
    params.save_path = str(save_dir)
    params.renamed_files = _names(meta, params.ti.layout())
    params.trackers = []
    # Not auto_managed, which silently queues the 4th download and the 6th seed.
    # Peers come only from the directory.
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
    """Returns the path of each file by its index in libtorrent's list, which contains pad files
    between ours.

    Every file is named, because libtorrent renames files whose names differ only in case while it
    adds them.
    """
    pad = lt.file_storage.flag_pad_file
    indexes = [i for i in range(layout.num_files()) if not layout.file_flags(i) & pad]
    if [layout.file_size(i) for i in indexes] != [file.size for file in meta.wire_files]:
        raise TorrentdistError("invalid_metafile", detail="libtorrent finds different files in it")
    return {i: file.place for i, file in zip(indexes, meta.wire_files, strict=True)}
