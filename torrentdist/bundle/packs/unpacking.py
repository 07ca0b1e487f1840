"""Makes the tree of a bundle from what a stock BitTorrent client fetched: large files and packs.

Always: every byte is hashed before the destination appears, by one rename. The fetched files are
only read.
"""

import os
import shutil
from pathlib import Path
from tempfile import mkdtemp

from torrentdist.bundle.content_check import finish_content, verify_content
from torrentdist.bundle.files.copying import place_content
from torrentdist.bundle.files.durability import disk_failures
from torrentdist.bundle.files.file_cloner import FileCloner
from torrentdist.bundle.metafile import CONTENT, LOOSE, FileEntry, Metafile
from torrentdist.bundle.packs.pack_files import write_files
from torrentdist.model.errors import TorrentdistError


def unpack(meta: Metafile, fetched: Path, dest: Path) -> None:
    """Puts the tree at `dest`, which must not exist. `fetched`: the client's directory, or the one
    named `content` in it."""
    if (fetched / CONTENT).is_dir() and not (fetched / "packs").is_dir():
        fetched = fetched / CONTENT
    with disk_failures(dest, needed=meta.size + meta.packed_size):
        home = Path(mkdtemp(prefix=".torrentdist-unpack-", dir=dest.absolute().parent))
        try:
            _lay_out(meta, fetched, home)
            write_files(meta, home)
            finish_content(meta, home / CONTENT)
            if damage := verify_content(meta, home / CONTENT):
                raise TorrentdistError("corrupt", path=damage[0].path, detail=damage[0].reason)
            place_content(meta, home / CONTENT, dest)
        finally:
            shutil.rmtree(home, ignore_errors=True)


def _lay_out(meta: Metafile, fetched: Path, home: Path) -> None:
    """Copies the large files, and links to the packs."""
    (home / CONTENT).mkdir()
    prefix = LOOSE.decode() if meta.packed.files else ""
    cloner = FileCloner()
    for file in meta.wire_files:
        source = fetched / (file.place if file.is_pack else prefix + file.path)
        if not source.is_file():
            raise TorrentdistError("path_not_found", path=str(source))
        target = home / file.place
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.is_pack:
            target.symlink_to(source.absolute())
        elif file.size:
            entry = FileEntry(file.path, file.size, file.root, False)
            for _ in cloner.clone(entry, os.fsencode(source), os.fsencode(target)):
                pass
