"""Nothing in a metafile from outside is trusted without a check."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torrentdist.bundle import bencode, merkle, metafile, safe_paths
from torrentdist.bundle.metafile import parse_metafile, with_trackers
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.errors import TorrentdistError

Tree = dict[bytes, Any]
PIECE = 32 * 1024


@pytest.fixture
def top(tmp_path: Path) -> Tree:
    """A good metafile as a dictionary: files a, d/b (three pieces), e (empty) and z."""
    source = tmp_path / "source"
    (source / "d").mkdir(parents=True)
    (source / "a").write_bytes(b"a" * PIECE)
    (source / "d" / "b").write_bytes(b"b" * (2 * PIECE + 5))
    (source / "e").touch()
    (source / "z").write_bytes(b"z")
    (source / "z").chmod(0o755)
    (source / "link").symlink_to("d/b")
    (source / "void").mkdir()
    value = bencode.decode(make_metafile(source, piece_length=PIECE).raw)
    assert isinstance(value, dict)
    return value


def refusal(top: Tree) -> str:
    with pytest.raises(TorrentdistError) as caught:
        parse_metafile(bencode.encode(top))
    assert caught.value.code == "invalid_metafile"
    return caught.value.message


def test_the_untouched_metafile_is_taken(top: Tree) -> None:
    """The refusals below would prove nothing."""
    meta = parse_metafile(bencode.encode(top))

    assert [file.path for file in meta.files] == ["a", "d/b", "e", "z"]
    assert (meta.size, meta.num_pieces, meta.file_count) == (PIECE + 2 * PIECE + 5 + 1, 1 + 3 + 1, 4)
    assert meta.directories == ("d", "void")


def test_modes_may_be_told(top: Tree) -> None:
    """A copy of a private file would be readable by everyone."""
    assert (0o400, 1, 0o644, 3) == parse_metafile(bencode.encode({**top, b"modes": [0o400, 1, 0o644, 3]})).modes
    top.pop(b"modes", None)
    assert () == parse_metafile(bencode.encode(top)).modes


def change(*keys: Any, to: Any) -> Callable[[Tree], None]:
    """Sets what is under these keys, or removes it if `to` is None."""

    def apply(top: Tree) -> None:
        node: Any = top
        for key in keys[:-1]:
            node = node[key]
        if to is None:
            del node[keys[-1]]
        else:
            node[keys[-1]] = to

    return apply


def info(*keys: Any, to: Any) -> Callable[[Tree], None]:
    return change(b"info", *keys, to=to)


def tree(*keys: Any, to: Any) -> Callable[[Tree], None]:
    return info(b"file tree", *keys, to=to)


def manifest(key: bytes, to: Any) -> Callable[[Tree], None]:
    return info(b"torrentdist", key, to=to)


def a_file(size: int = 1) -> Tree:
    return {b"": {b"length": size, b"pieces root": b"r" * 32}}


BAD = {
    "modes of more files": (change(b"modes", to=[0o400, 5]), "its modes"),
    "a mode without a number": (change(b"modes", to=[0o400, 4, 0]), "its modes"),
    "a mode with more than rights": (change(b"modes", to=[0o4755, 4]), "its modes"),
    "a negative number of modes": (change(b"modes", to=[0, 5, 0o400, -1]), "its modes"),
    "modes that are no numbers": (change(b"modes", to=[b"0400", 4]), "its modes"),
    "modes in a dictionary": (change(b"modes", to={b"a": 4}), "its modes"),
    "a tracker": (change(b"announce", to=b"http://192.0.2.1/announce"), "'announce'"),
    "trackers": (change(b"announce-list", to=[[b"http://192.0.2.1/announce"]]), "'announce-list'"),
    "a web seed": (change(b"url-list", to=[b"http://192.0.2.1/"]), "'url-list'"),
    "an older web seed": (change(b"httpseeds", to=[b"http://192.0.2.1/"]), "'httpseeds'"),
    "a node of the DHT": (change(b"nodes", to=[[b"192.0.2.1", 6881]]), "'nodes'"),
    "an unknown key at the top": (change(b"comment", to=b"x"), "'comment'"),
    "no info": (change(b"info", to=None), "info dictionary"),
    "info is a string": (change(b"info", to=b"x"), "info dictionary"),
    "v1 or hybrid": (info(b"pieces", to=b"x" * 20), "v1 or hybrid"),
    "v1 files": (info(b"files", to=[]), "v1 or hybrid"),
    "v1 length": (info(b"length", to=1), "v1 or hybrid"),
    "meta version 1": (info(b"meta version", to=1), "meta version"),
    "meta version missing": (info(b"meta version", to=None), "meta version"),
    "stock torrent": (info(b"torrentdist", to=None), "no torrentdist manifest"),
    "manifest is a list": (info(b"torrentdist", to=[]), "manifest"),
    "unknown info key": (info(b"source", to=1), "unknown key"),
    "unknown schema": (manifest(b"schema", 3), "schema 3"),
    "schema of packs without a manifest beside it": (manifest(b"schema", 2), "not the one that its info"),
    "a manifest beside it that it does not name": (change(b"manifest", to={}), "names none"),
    "schema is text": (manifest(b"schema", b"1"), "schema no number"),
    "schema missing": (manifest(b"schema", None), "schema"),
    "unknown manifest key": (manifest(b"owner", b"root"), "unknown keys"),
    "missing manifest key": (manifest(b"symlinks", None), "missing or unknown"),
    "name missing": (info(b"name", to=None), "name"),
    "name is a list": (info(b"name", to=[b"a"]), "missing or no string"),
    "name is a dictionary": (info(b"name", to={b"a": b"b"}), "missing or no string"),
    "name climbs": (info(b"name", to=b".."), "cannot be used"),
    "name with slash": (info(b"name", to=b"a/b"), "cannot be used"),
    "name not UTF-8": (info(b"name", to=b"\xff"), "UTF-8"),
    "directory with another name": (info(b"name", to=b"other"), "not named 'content'"),
    "not private": (info(b"private", to=None), "private"),
    "private is 0": (info(b"private", to=0), "private"),
    "piece length 0": (info(b"piece length", to=0), "piece length"),
    "piece length negative": (info(b"piece length", to=-PIECE), "piece length"),
    "piece length 8 KiB": (info(b"piece length", to=8192), "piece length"),
    "piece length 16 KiB, which libtorrent does not survive": (info(b"piece length", to=16384), "piece length"),
    "piece length 24 KiB": (info(b"piece length", to=PIECE + 8192), "piece length"),
    "piece length 32 MiB": (info(b"piece length", to=1 << 25), "piece length"),
    "piece length text": (info(b"piece length", to=b"32768"), "piece length"),
    "no file tree": (info(b"file tree", to=None), "file tree"),
    "empty file tree": (info(b"file tree", to={}), "without files"),
    "empty directory in tree": (tree(b"d", to={}), "without files"),
    "entry is no dictionary": (tree(b"d", to=b"x"), "no dictionary"),
    "leaf is no dictionary": (tree(b"a", to={b"": 1}), "no dictionary"),
    "file at the top": (tree(b"", to={b"length": 1}), "cannot be used"),
    "climbing path": (tree(b"..", to=a_file()), "cannot be used"),
    "absolute path": (tree(b"/etc", to=a_file()), "cannot be used"),
    "path with NUL": (tree(b"a\0", to=a_file()), "cannot be used"),
    "dot": (tree(b".", to=a_file()), "cannot be used"),
    "name of 256 bytes": (tree(b"n" * 256, to=a_file()), "cannot be used"),
    "surrogate": (tree(b"\xed\xa0\x80", to=a_file()), "UTF-8"),
    "file and directory": (tree(b"a", b"x", to=a_file()), "at once"),
    "size missing": (tree(b"a", b"", b"length", to=None), "size"),
    "size negative": (tree(b"a", b"", b"length", to=-1), "size"),
    "size enormous": (tree(b"a", b"", b"length", to=1 << 62), "size"),
    "size text": (tree(b"a", b"", b"length", to=b"1"), "size"),
    "root missing": (tree(b"a", b"", b"pieces root", to=None), "root"),
    "root short": (tree(b"a", b"", b"pieces root", to=b"x" * 31), "root"),
    "root number": (tree(b"a", b"", b"pieces root", to=1), "root"),
    "empty file with root": (tree(b"e", b"", b"pieces root", to=b"x" * 32), "root"),
    "unknown attribute": (tree(b"a", b"", b"attr", to=b"l"), "attributes"),
    "one more piece": (tree(b"d", b"b", b"", b"length", to=4 * PIECE), "layer"),
    "too small for its layer": (tree(b"d", b"b", b"", b"length", to=PIECE), "layers"),
    "too many pieces": (tree(b"d", b"b", b"", b"length", to=PIECE << 22), "layer"),
    "no piece layers": (change(b"piece layers", to=None), "piece layers"),
    "no piece layer": (change(b"piece layers", to={}), "piece layers"),
    "surplus layer": (change(b"piece layers", b"r" * 32, to=b"x" * 64), "piece layers"),
    "executable out of range": (manifest(b"executable", [4]), "not there"),
    "executable negative": (manifest(b"executable", [-1]), "not in order"),
    "executable twice": (manifest(b"executable", [1, 1]), "not in order"),
    "executable unsorted": (manifest(b"executable", [2, 1]), "not in order"),
    "executable text": (manifest(b"executable", [b"a"]), "not in order"),
    "executable no list": (manifest(b"executable", {}), "missing"),
    "flag": (manifest(b"single file", 2), "neither 0 nor 1"),
    "no single file": (manifest(b"single file", 1), "single file"),
    "executable holds lists": (manifest(b"executable", [[[]]]), "deeper"),
    "symlinks no dict": (manifest(b"symlinks", []), "symlinks"),
    "symlink target number": (manifest(b"symlinks", {b"l": 1}), "no target"),
    "symlink target empty": (manifest(b"symlinks", {b"l": b""}), "target"),
    "symlink target NUL": (manifest(b"symlinks", {b"l": b"a\0"}), "target"),
    "symlink target long": (manifest(b"symlinks", {b"l": b"x" * 5000}), "target"),
    "symlink target not UTF-8": (manifest(b"symlinks", {b"l": b"\xff"}), "UTF-8"),
    "symlink absolute": (manifest(b"symlinks", {b"l": b"/etc"}), "leaves"),
    "symlink escapes": (manifest(b"symlinks", {b"d/l": b"../.."}), "leaves"),
    "symlink chain escapes": (manifest(b"symlinks", {b"d/t": b"..", b"u": b"d/t/../x"}), "leaves"),
    "symlink circle": (manifest(b"symlinks", {b"l": b"m", b"m": b"l"}), "circle"),
    "symlink climbs": (manifest(b"symlinks", {b"../l": b"a"}), "cannot be used"),
    "symlink is a file": (manifest(b"symlinks", {b"a": b"z"}), "twice"),
    "symlink is a directory": (manifest(b"symlinks", {b"d": b"z"}), "beneath"),
    "symlink below a file": (manifest(b"symlinks", {b"a/l": b"x"}), "beneath"),
    "file below a symlink": (manifest(b"symlinks", {b"l": b"d", b"l/x": b"y"}), "beneath"),
    "empty dirs no list": (manifest(b"empty dirs", {}), "missing"),
    "empty dirs unsorted": (manifest(b"empty dirs", [b"y", b"x"]), "not in order"),
    "empty dirs twice": (manifest(b"empty dirs", [b"y", b"y"]), "not in order"),
    "empty dir climbs": (manifest(b"empty dirs", [b"../y"]), "cannot be used"),
    "empty dir with files": (manifest(b"empty dirs", [b"d"]), "beneath"),
    "empty dir is a file": (manifest(b"empty dirs", [b"a"]), "twice"),
    "empty dir below symlink": (manifest(b"empty dirs", [b"link/y"]), "beneath"),
}


@pytest.mark.parametrize(("mutate", "said"), BAD.values(), ids=BAD.keys())
def test_a_false_claim_is_refused(top: Tree, mutate: Callable[[Tree], None], said: str) -> None:
    """A hostile metafile would be used."""
    mutate(top)

    assert said in refusal(top)


@pytest.mark.parametrize(("key", "value"), [(b"symlinks", {b"l": b"f"}), (b"empty dirs", [b"d"])])
def test_beside_a_single_file_there_is_nothing(tmp_path: Path, key: bytes, value: object) -> None:
    """A download of a file would put more into the user's directory than its name says."""
    (tmp_path / "f").write_bytes(b"f")
    top = bencode.decode(make_metafile(tmp_path / "f", piece_length=PIECE).raw)
    assert isinstance(top, dict)
    top[b"info"][b"torrentdist"][key] = value  # type: ignore[index,call-overload,assignment]

    assert "single file" in refusal(top)


def test_two_layers_cannot_be_exchanged(top: Tree) -> None:
    """Every piece would be refused while fetching, or a wrong one accepted."""
    [root] = top[b"piece layers"]
    layer = top[b"piece layers"][root]
    top[b"piece layers"][root] = layer[64:] + layer[32:64] + layer[:32]

    assert "does not hash" in refusal(top)


@pytest.mark.parametrize("layer", [7, b"x" * 64])
def test_a_layer_that_fits_no_file_is_refused(top: Tree, layer: object) -> None:
    """A hostile metafile would end a request with a bug."""
    [root] = top[b"piece layers"]
    top[b"piece layers"][root] = layer

    assert "does not fit" in refusal(top)


def test_two_sizes_of_one_root_are_refused(top: Tree) -> None:
    """One piece layer would stand for two files of different lengths."""
    files = top[b"info"][b"file tree"]
    files[b"y"] = {b"": {**files[b"d"][b"b"][b""], b"length": 2 * PIECE + 6}}

    assert "one root" in refusal(top)


def test_a_bundle_without_a_byte_is_refused(top: Tree) -> None:
    """libtorrent cannot hold a torrent of no bytes."""
    top[b"info"][b"file tree"] = {b"e": {b"": {b"length": 0}}}
    top[b"info"][b"torrentdist"][b"executable"] = []
    top[b"piece layers"] = {}

    assert "no bytes" in refusal(top)


def test_depth_and_size_are_bounded(top: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile metafile would take memory without bound."""
    nested: Tree = a_file()
    for _ in range(91):
        nested = {b"d": nested}
    deep = {**top, b"info": {**top[b"info"], b"file tree": nested}}

    assert "levels" in refusal(deep)
    for most in (len(bencode.encode(top)), 100):
        monkeypatch.setattr(metafile, "MAX_METAFILE_BYTES", most)
        assert most == 100 or parse_metafile(bencode.encode(top))
    assert "more than 100" in refusal(top)


def test_pieces_and_files_are_counted(top: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """libtorrent would refuse what we distribute, or a hostile metafile would take memory without
    bound."""
    monkeypatch.setattr(metafile, "MAX_PIECES", 5)
    assert parse_metafile(bencode.encode(top)).num_pieces == 5
    monkeypatch.setattr(metafile, "MAX_PIECES", 4)
    assert "more than 4 pieces" in refusal(top)
    monkeypatch.setattr(safe_paths, "MAX_ENTRIES", 3)
    assert "more than 3 files" in refusal(top)


@pytest.mark.parametrize("raw", [b"", b"d", b"de", b"le", b"d4:info", b"\0" * 100, b"<html>"])
def test_what_is_no_metafile_at_all_is_refused(raw: bytes) -> None:
    """Garbage instead of a metafile would raise an unexpected exception."""
    with pytest.raises(TorrentdistError) as caught:
        parse_metafile(raw)

    assert caught.value.code == "invalid_metafile"


def test_trailing_bytes_are_refused(top: Tree) -> None:
    """Two different files would be the same metafile."""
    with pytest.raises(TorrentdistError) as caught:
        parse_metafile(bencode.encode(top) + b"\n")

    assert caught.value.code == "invalid_metafile"


def test_trackers_change_no_digest(top: Tree) -> None:
    """A stock client would be in another swarm than ours."""
    raw = bencode.encode(top)
    named = with_trackers(raw, ["http://127.0.0.1:1/a", "http://127.0.0.1:2/b"])
    value = bencode.decode(named)

    assert isinstance(value, dict)
    assert (
        value[b"announce"],
        value[b"announce-list"],
    ) == (b"http://127.0.0.1:1/a", [[b"http://127.0.0.1:1/a"], [b"http://127.0.0.1:2/b"]])
    assert bencode.encode(top[b"info"]) == bencode.encode(value[b"info"])
    assert raw == with_trackers(named, [])


def test_the_digest_is_the_hash_of_the_info_dictionary(top: Tree) -> None:
    """Our digest would not be the swarm's info-hash."""
    expected = hashlib.sha256(bencode.encode(top[b"info"])).hexdigest()

    assert expected == parse_metafile(bencode.encode(top)).digest


def test_merkle_roots_pad_as_bep_52_says() -> None:
    """A file with an odd number of blocks would have another root than in other clients."""
    a, b, c = (bytes([i]) * 32 for i in range(3))

    def pair(left: bytes, right: bytes) -> bytes:
        return hashlib.sha256(left + right).digest()

    assert pair(pair(a, b), pair(c, merkle.ZERO)) == merkle.root([a, b, c])
    none = pair(merkle.ZERO, merkle.ZERO)
    assert (none, pair(none, none)) == (merkle.empty_piece(2 * merkle.BLOCK), merkle.empty_piece(4 * merkle.BLOCK))
    assert pair(pair(a, merkle.ZERO), pair(merkle.ZERO, merkle.ZERO)) == merkle.piece_hash([a], 4 * merkle.BLOCK)
    assert pair(pair(a, b), pair(c, merkle.empty_piece(2 * merkle.BLOCK))) == merkle.root_of_layer(
        a + b + c, 2 * merkle.BLOCK
    )


def test_each_block_is_a_leaf() -> None:
    """A file would have another root than in other clients."""
    data = bytes(range(256)) * (merkle.BLOCK // 128) + b"end"
    blocks = [data[: merkle.BLOCK], data[merkle.BLOCK : 2 * merkle.BLOCK], b"end"]

    assert [hashlib.sha256(block).digest() for block in blocks] == merkle.leaves(memoryview(data))
    assert [] == merkle.leaves(memoryview(b""))
