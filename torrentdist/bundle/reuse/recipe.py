"""The recipe of a bundle: into which chunks its large files fall, each with a length and a hash.

Chunks are cut by content, so two versions of a file have most chunks in common wherever they begin.
Always: a recipe names its version and parameters, and has a bounded size.
Never: be trusted for content. It is a hint: whoever follows it hashes what it made.
Pure: no I/O and no clock.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

import msgspec

from torrentdist.bundle import bencode

VERSION: Final = 1
LEAST: Final = 16 * 1024
USUAL: Final = 64 * 1024
MOST: Final = 256 * 1024
"""The sizes of chunks, in bytes."""
MAX_RECIPE_BYTES: Final = 16 * 1024 * 1024
"""Room for the recipes of about 60 GB. Files that do not fit get none."""
HASH: Final = 16
_LENGTH: Final = 4
PER_CHUNK: Final = HASH + _LENGTH
_HEAD: Final = 128
"""Bytes that the names of the fields and the root take at most."""


class Chunk(msgspec.Struct, frozen=True, gc=False):
    offset: int
    length: int
    hash: bytes


class FileRecipe(msgspec.Struct, frozen=True, dict=True):
    """The chunks of one file, in its order."""

    root: bytes
    lengths: bytes
    """32-bit numbers, little-endian."""
    hashes: bytes

    @property
    def count(self) -> int:
        return len(self.lengths) // _LENGTH

    @cached_property
    def size(self) -> int:
        return sum(_numbers(self.lengths))

    def chunks(self) -> Iterator[Chunk]:
        offset = 0
        for number, length in enumerate(_numbers(self.lengths)):
            yield Chunk(offset, length, self.hashes[number * HASH : (number + 1) * HASH])
            offset += length


class Recipe(msgspec.Struct, frozen=True, dict=True):
    files: tuple[FileRecipe, ...] = ()
    version: int = VERSION
    sizes: tuple[int, int, int] = (LEAST, USUAL, MOST)

    @cached_property
    def by_root(self) -> Mapping[bytes, FileRecipe]:
        return {file.root: file for file in self.files}


def file_recipe(root: bytes, chunks: Iterator[tuple[int, bytes]]) -> FileRecipe:
    """Makes the recipe of a file from the length and the hash of each chunk."""
    found = list(chunks)
    lengths = b"".join(length.to_bytes(_LENGTH, "little") for length, _ in found)
    return FileRecipe(root, lengths, b"".join(hash for _, hash in found))


def encode_recipe(recipe: Recipe) -> bytes:
    """Encodes as many files as MAX_RECIPE_BYTES has room for."""
    room = MAX_RECIPE_BYTES - _HEAD
    kept: list[FileRecipe] = []
    for file in recipe.files:
        needed = file.count * PER_CHUNK + _HEAD
        if needed > room:
            continue
        room -= needed
        kept.append(file)
    return msgspec.msgpack.encode(msgspec.structs.replace(recipe, files=tuple(kept)))


def parse_recipe(raw: bytes | None) -> Recipe | None:
    """Returns the recipe, or None if these bytes are none that this release can follow."""
    if raw is None or len(raw) > MAX_RECIPE_BYTES:
        return None
    try:
        recipe = msgspec.msgpack.decode(raw, type=Recipe)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if recipe.version != VERSION or recipe.sizes != (LEAST, USUAL, MOST):
        return None
    return recipe if all(_is_sound(file) for file in recipe.files) else None


def recipe_hash(raw: bytes) -> str:
    """Returns what a bundle's record says of its recipe."""
    return hashlib.sha256(raw).hexdigest()


def with_recipe(metafile: bytes, recipe: bytes | None) -> bytes:
    """Joins a metafile and its recipe for a request."""
    return metafile if recipe is None else bencode.encode({b"metafile": metafile, b"recipe": recipe})


def split_recipe(body: bytes) -> tuple[bytes, bytes | None]:
    """Returns the metafile and the recipe that `with_recipe` joined. A metafile may come alone."""
    try:
        parts = bencode.decode(body, most=5, depth=2) if body.startswith(b"d8:metafile") else None
    except bencode.BencodeError:
        return body, None
    if isinstance(parts, dict):
        metafile, recipe = parts[b"metafile"], parts.get(b"recipe")
        if isinstance(metafile, bytes) and isinstance(recipe, bytes):
            return metafile, recipe
    return body, None


def _is_sound(file: FileRecipe) -> bool:
    if len(file.root) != 32 or len(file.lengths) % _LENGTH or len(file.hashes) != file.count * HASH:
        return False
    # Only the last chunk is short. Shorter ones would cost more than the file that they are of.
    return file.count <= file.size // LEAST + 1 and all(0 < length <= MOST for length in _numbers(file.lengths))


def _numbers(lengths: bytes) -> array[int]:
    numbers = array("I")
    numbers.frombytes(lengths)
    return numbers
