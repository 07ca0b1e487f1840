"""Finishes a bundle's arrived content (modes, symlinks, empty directories), and finds damage by
comparing content with the metafile.

Always: if no damage is found, the content equals the upload: no entry is missing or extra. No
symlink is followed. A shortage of descriptors or memory is an error, not damage.
Never: decide what to do about damage, or run on an event loop: every function blocks.
Longer than most files: finishing and checking must agree on what belongs where.
"""

import errno
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import msgspec

from torrentdist.bundle import hashing
from torrentdist.bundle.directory_scan import EntryKind, FoundEntry, is_executable, kind_of, walk
from torrentdist.bundle.files.durability import disk_failure, is_shortage
from torrentdist.bundle.files.holes import punch_holes
from torrentdist.bundle.hashing import FileHash, FileToHash, Progress
from torrentdist.bundle.metafile import FileEntry, Metafile, Symlink

FILE_MODE = 0o444
EXECUTABLE_MODE = 0o555
DIRECTORY_MODE = 0o755


class Damage(msgspec.Struct, frozen=True):
    path: str
    reason: str


class _Layout:
    """The entries that should be on disk, by their paths as bytes."""

    def __init__(self, meta: Metafile) -> None:
        self.files = {file.path.encode(): file for file in meta.files}
        self.links = {link.path.encode(): link.target.encode() for link in meta.symlinks}
        self.directories = {path.encode() for path in meta.directories}

    def kind(self, path: bytes) -> EntryKind | None:
        if path in self.files:
            return EntryKind.FILE
        if path in self.links:
            return EntryKind.SYMLINK
        return EntryKind.DIRECTORY if path in self.directories else None


def finish_content(meta: Metafile, content_dir: Path) -> dict[str, os.stat_result]:
    """Adds what a swarm cannot transfer: symlinks, empty files, empty directories and modes.

    Removes entries that are not in the bundle, and turns zeros into holes. Returns what the system
    says of the files that it left as they were.
    """
    try:
        top = os.fsencode(content_dir)
        if not os.path.lexists(top):
            os.mkdir(top)
        if not stat.S_ISDIR(os.lstat(top).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), top)
        return _finish(meta, _Layout(meta), top)
    except OSError as exc:
        raise disk_failure(exc, content_dir) from exc


def _finish(meta: Metafile, layout: _Layout, top: bytes) -> dict[str, os.stat_result]:
    # After the walk no foreign entry remains, so every path below consists of real directories.
    found = _without_foreign(layout, top)
    for directory in sorted(layout.directories):
        if directory not in found:
            os.mkdir(_join(top, directory))
        _set_mode(_join(top, directory), DIRECTORY_MODE)
    for path, target in layout.links.items():
        if path not in found:
            os.symlink(target, _join(top, path))
    with_holes = punch_holes(meta, Path(os.fsdecode(top)))
    left: dict[str, os.stat_result] = {}
    for path, file in layout.files.items():
        info, mode = found.get(path), EXECUTABLE_MODE if file.executable else FILE_MODE
        if info is not None and stat.S_IMODE(info.st_mode) == mode:
            left[file.path] = info
        elif info is not None:
            os.chmod(_join(top, path), mode)
        elif file.size == 0:
            os.close(os.open(_join(top, path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
            _set_mode(_join(top, path), mode)
    for changed in with_holes:
        left.pop(changed, None)
    return left


def _without_foreign(layout: _Layout, top: bytes) -> dict[bytes, os.stat_result]:
    """Removes what is not in the bundle. Returns the entries that are left."""
    left: dict[bytes, os.stat_result] = {}
    _set_mode(top, DIRECTORY_MODE)
    for _, entries in walk(top):
        foreign = [
            found
            for found in entries
            if layout.kind(found.path) is not found.kind or _is_other_link(layout, top, found)
        ]
        for found in foreign:
            _remove(_join(top, found.path), found.kind)
            entries.remove(found)
        left.update((found.path, found.info) for found in entries)
    return left


def _is_other_link(layout: _Layout, top: bytes, found: FoundEntry) -> bool:
    return found.kind is EntryKind.SYMLINK and os.readlink(_join(top, found.path)) != layout.links[found.path]


def _join(top: bytes, path: bytes) -> bytes:
    return top + b"/" + path if path else top


def _remove(path: bytes, kind: EntryKind) -> None:
    if kind is EntryKind.DIRECTORY:
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _set_mode(path: bytes, mode: int) -> None:
    if stat.S_IMODE(os.lstat(path).st_mode) != mode:
        os.chmod(path, mode)


def verify_content(meta: Metafile, content_dir: Path, progress: Progress | None = None) -> list[Damage]:
    """Reads every byte of `content_dir` and returns each difference from the bundle."""
    layout = _Layout(meta)
    damaged = list(_structure_damage(layout, os.fsencode(content_dir)))
    bad = {damage.path for damage in damaged}
    if "." in bad:
        return damaged
    readable = [file for file in meta.files if file.path not in bad]
    return sorted([*damaged, *_byte_damage(meta, readable, content_dir, progress)], key=lambda damage: damage.path)


def protect_packs(meta: Metafile, home: Path) -> None:
    """Makes the packs of a bundle read-only. One that is so already may belong to others too."""
    for file in meta.wire_files:
        if file.is_pack:
            _set_mode(os.fsencode(home / file.place), FILE_MODE)


def verify_packs(meta: Metafile, home: Path, paths: Collection[str] | None = None) -> list[Damage]:
    """Reads every byte of these packs of a bundle (None: all), and returns the damage."""
    packs = [file for file in meta.wire_files if file.is_pack and (paths is None or file.path in paths)]
    wanted = [FileToHash(os.fsencode(home / pack.place), pack.size) for pack in packs]
    damage = []
    for pack, outcome in zip(packs, hashing.hash_files(wanted, meta.piece_length), strict=True):
        if isinstance(outcome, OSError):
            _raise_shortage(outcome, home / pack.place)
        if not isinstance(outcome, FileHash) or outcome.root != pack.root:
            damage.append(Damage(pack.place, "the pack does not match its hash"))
    return damage


def remove_wrong_packs(meta: Metafile, home: Path) -> None:
    """Removes the packs that an interrupted transfer left incomplete, so that they are made from
    the files."""
    for damage in verify_packs(meta, home):
        (home / damage.path).unlink(missing_ok=True)


def verify_files(meta: Metafile, content_dir: Path, paths: Collection[str]) -> list[Damage]:
    """Reads every byte of these files, and returns the damage."""
    top, damage, readable = os.fsencode(content_dir), [], []
    for file in meta.files:
        if file.path in paths:
            fault = _fault_at(file, _join(top, file.path.encode()))
            if fault is None:
                readable.append(file)
            else:
                damage.append(Damage(file.path, fault))
    return [*damage, *_byte_damage(meta, readable, content_dir, None)]


def check_links(links: Iterable[Symlink], content_dir: Path) -> list[Damage]:
    """Returns the symlinks that are missing or have a wrong target."""
    damage = []
    for link in links:
        try:
            same = os.readlink(content_dir / link.path) == link.target
        except OSError as exc:
            _raise_shortage(exc, content_dir / link.path)
            same = False
        if not same:
            damage.append(Damage(link.path, "the symlink has another target"))
    return damage


def _fault_at(file: FileEntry, path: bytes) -> str | None:
    try:
        return _file_fault(file, os.lstat(path))
    except OSError as exc:
        _raise_shortage(exc, Path(os.fsdecode(path)))
        return exc.strerror or "it cannot be read"


def _raise_shortage(error: OSError, path: Path) -> None:
    if is_shortage(error):
        raise disk_failure(error, path) from error


def verify_copy(meta: Metafile, path: Path, progress: Progress | None = None) -> list[Damage]:
    """Verifies a copy outside the store.

    `path` is the file itself if the bundle is a single file.
    """
    if not meta.single_file:
        return verify_content(meta, path, progress)
    [entry] = meta.files
    if reason := _fault_at(entry, os.fsencode(path)):
        return [Damage(entry.path, reason)]
    return list(_hash_damage(meta, [(entry, os.fsencode(path))], progress))


def same_content(meta: Metafile, path: Path) -> bool:
    """Whether `path` holds exactly this bundle. Reads it only if names, sizes and modes agree."""
    if not meta.single_file and next(_structure_damage(_Layout(meta), os.fsencode(path)), None):
        return False
    return not verify_copy(meta, path)


def _structure_damage(layout: _Layout, top: bytes) -> Iterator[Damage]:
    """Yields the damage that can be found without reading files."""
    missing = set(layout.files) | set(layout.links) | layout.directories
    try:
        if kind_of(os.lstat(top).st_mode) is not EntryKind.DIRECTORY:
            yield Damage(".", "it is no directory")
            return
        for _, entries in walk(top):
            for found in list(entries):
                missing.discard(found.path)
                if reason := _entry_fault(layout, top, found):
                    yield Damage(found.path.decode("utf-8", "backslashreplace"), reason)
                if layout.kind(found.path) is not found.kind:
                    entries.remove(found)
    except FileNotFoundError:
        yield Damage(".", "it is missing, or it changed while it was being read")
        return
    except OSError as exc:
        _raise_shortage(exc, Path(os.fsdecode(top)))
        yield Damage(".", f"it cannot be read: {exc.strerror}")
        return
    for path in sorted(missing):
        yield Damage(path.decode(), "it is missing")


def _entry_fault(layout: _Layout, top: bytes, found: FoundEntry) -> str | None:
    wanted = layout.kind(found.path)
    if wanted is None:
        return "it is not in the bundle"
    if wanted is not found.kind:
        return f"it is a {found.kind} instead of a {wanted}"
    if wanted is EntryKind.FILE:
        return _file_fault(layout.files[found.path], found.info)
    if _is_other_link(layout, top, found):
        return "the symlink has another target"
    return None


def _file_fault(file: FileEntry, info: os.stat_result) -> str | None:
    if not stat.S_ISREG(info.st_mode):
        return f"it is a {kind_of(info.st_mode)} instead of a file"
    if info.st_size != file.size:
        return f"it has {info.st_size} bytes instead of {file.size}"
    if is_executable(info.st_mode) != file.executable:
        return "its executable bit differs"
    return None


def _byte_damage(
    meta: Metafile, files: list[FileEntry], content_dir: Path, progress: Progress | None
) -> Iterator[Damage]:
    top = os.fsencode(content_dir)
    return _hash_damage(meta, [(file, _join(top, file.path.encode())) for file in files], progress)


def _hash_damage(meta: Metafile, files: list[tuple[FileEntry, bytes]], progress: Progress | None) -> Iterator[Damage]:
    wanted = [FileToHash(place, file.size) for file, place in files]
    outcomes = hashing.hash_files(wanted, meta.piece_length, progress)
    for (file, place), outcome in zip(files, outcomes, strict=True):
        if isinstance(outcome, OSError):
            _raise_shortage(outcome, Path(os.fsdecode(place)))
            yield Damage(file.path, f"it cannot be read: {outcome.strerror}")
        elif not isinstance(outcome, FileHash):
            yield Damage(file.path, str(outcome))
        elif outcome.root != file.root:
            yield Damage(file.path, "its bytes do not match its hash")
