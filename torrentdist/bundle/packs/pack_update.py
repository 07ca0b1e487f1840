"""An update: what a host that has one version of a bundle needs for the metafile of the next one,
and the small files that are new in it. Of a small bundle, a host that has no version gets all.

Always: what is made of an update is checked as if it came from a stranger: the metafile by its
digest, each file by its root.
Never: hold more than MOST_BYTES of files. Files that fill whole pieces are left to the swarm.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from torrentdist.bundle import bencode
from torrentdist.bundle.file_tree import FileEntry
from torrentdist.bundle.metafile import Metafile, metafile_of
from torrentdist.bundle.packs import pack_manifest
from torrentdist.bundle.packs.pack_files import root_of
from torrentdist.bundle.packs.pack_plan import pack_order
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import Digest

MOST_BYTES: Final = 8 * 1024 * 1024
MOST_WHOLE_BYTES: Final = 64 * 1024
"""The largest bundle whose files come with the metafile: a swarm would take longer to form."""
MOST_WHOLE_FILES: Final = 256
WORTH: Final = 2
"""Files are sent if the pieces around them have at least this many times their bytes."""


class Update(NamedTuple):
    meta: Metafile
    files: Mapping[bytes, bytes]
    """The content of small files, by their roots."""


def make_update(base: Metafile, meta: Metafile, read: Callable[[Sequence[FileEntry]], bytes]) -> bytes | None:
    """Returns the update from `base` to `meta`; None: the whole metafile is hardly larger. `read`
    returns the content of small files, one after another."""
    held, kept = set(base.packed.files), set(meta.packed.files)
    new = [file for file in meta.packed.files if file not in held]
    if not held or 2 * len(new) >= len(kept):
        return None
    top = bencode.parts(meta.raw)
    manifest = bencode.parts(top[b"manifest"])
    gone = [number for number, file in enumerate(base.packed.files) if file not in kept]
    sent = _unknown(base.files, new)
    return bencode.encode_dict_of_encoded(
        {
            b"base": bencode.encode(base.digest.encode()),
            b"files": bencode.encode(read(sent) if _is_worth_it(meta, sent) else b""),
            b"gone": bencode.encode(pack_manifest.numbers(gone)),
            b"new": bencode.encode(pack_manifest.encode_packed(new, [len(new)]) if new else {}),
            b"packs": manifest[b"packs"],
            b"rest": bencode.encode_dict_of_encoded(
                {key: value for key, value in manifest.items() if key not in pack_manifest.COLUMNS}
            ),
            b"top": bencode.encode_dict_of_encoded({key: value for key, value in top.items() if key != b"manifest"}),
        }
    )


def make_whole(meta: Metafile, read: Callable[[Sequence[FileEntry]], bytes]) -> bytes | None:
    """Returns a small bundle with its metafile: an update that begins with nothing. None: it is not
    small."""
    if meta.size > MOST_WHOLE_BYTES or len(meta.files) > MOST_WHOLE_FILES:
        return None
    content = read(_unknown((), meta.files))
    return bencode.encode_dict_of_encoded({b"files": bencode.encode(content), b"whole": bencode.encode(meta.raw)})


def base_of(raw: bytes) -> Digest | None:
    """Returns the digest of the version that an update begins with. None: it begins with
    nothing."""
    with _reading():
        parts = bencode.parts(raw)
        return None if b"whole" in parts else ids.digest(_string(parts, b"base").decode())


def apply_update(raw: bytes, base: Metafile | None, digest: str) -> Update:
    """Makes the metafile of `digest` from the one of an earlier version, if there is one. Raises
    `corrupt` if that is not what comes out."""
    with _reading():
        parts = bencode.parts(raw)
        return _whole(parts, digest) if base is None else _applied(parts, base, digest)


def _whole(parts: Mapping[bytes, bytes], digest: str) -> Update:
    meta = metafile_of(_string(parts, b"whole"), digest)
    return Update(meta, _cut(_string(parts, b"files"), _unknown((), meta.files)))


def _applied(parts: dict[bytes, bytes], base: Metafile, digest: str) -> Update:
    gone = set(pack_manifest.parse_numbers(_string(parts, b"gone")))
    columns = bencode.parts(parts[b"new"])
    new = pack_manifest.parse_packed(columns).files if columns else ()
    files = [*(file for number, file in enumerate(base.packed.files) if number not in gone), *new]
    ordered = [files[number] for number in pack_order([file.path.encode() for file in files])]
    packs = pack_manifest.parse_numbers(_string(parts, b"packs"))
    packed = {key: bencode.encode(value) for key, value in pack_manifest.encode_packed(ordered, packs).items()}
    manifest = bencode.encode_dict_of_encoded(bencode.parts(parts[b"rest"]) | packed)
    top = bencode.parts(parts[b"top"]) | {b"manifest": manifest}
    meta = metafile_of(bencode.encode_dict_of_encoded(top), digest)
    return Update(meta, _cut(_string(parts, b"files"), _unknown(base.files, new)))


def _cut(content: bytes, files: Sequence[FileEntry]) -> dict[bytes, bytes]:
    """Returns the content of each of these files; nothing if they were not sent."""
    if len(content) > MOST_BYTES:
        raise TorrentdistError("corrupt", path="an update", detail=f"it holds {len(content)} bytes of files")
    found, at = {}, 0
    for file in files if content else ():
        data = content[at : at + file.size]
        at += file.size
        if root_of(data) != file.root:
            raise TorrentdistError("corrupt", path=file.path, detail="its update holds other bytes")
        found[file.root] = data
    return found


def _unknown(held: Sequence[FileEntry], new: Sequence[FileEntry]) -> list[FileEntry]:
    """Returns a file for each content that none of the files `held` has."""
    known = {file.root for file in held}
    return list({file.root: file for file in new if file.size and file.root not in known}.values())


def _is_worth_it(meta: Metafile, files: Sequence[FileEntry]) -> bool:
    places = [meta.whereabouts[file.path] for file in files]
    pieces = {(pack.path, start // meta.piece_length) for pack, start in places}
    size = sum(file.size for file in files)
    return size <= MOST_BYTES and len(pieces) * meta.piece_length >= WORTH * size


def _string(parts: Mapping[bytes, bytes], key: bytes) -> bytes:
    value = bencode.decode(parts[key], most=1)
    if not isinstance(value, bytes):
        raise bencode.BencodeError(f"{key.decode()} is no string")
    return value


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except (bencode.BencodeError, KeyError, UnicodeDecodeError) as exc:
        raise TorrentdistError("corrupt", path="an update", detail=f"it cannot be read: {exc}") from exc
