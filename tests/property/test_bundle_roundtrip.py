"""Every directory comes back unchanged, and arbitrary bytes are refused without a crash."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_size import examples

from torrentdist.bundle import bencode
from torrentdist.bundle.content_check import finish_content, verify_content
from torrentdist.bundle.metafile import Metafile, parse_metafile, with_trackers
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.errors import TorrentdistError

names = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..")
)
contents = st.binary(max_size=40) | st.integers(0, 3).flatmap(
    lambda blocks: st.integers(-1, 1).map(lambda more: b"%d" % blocks * max(0, blocks * 16384 + more))
)
leaves = st.tuples(st.just("file"), contents, st.booleans()) | st.tuples(st.just("link"), names) | st.just(("dir",))
trees = st.dictionaries(
    names, st.recursive(leaves, lambda inner: st.dictionaries(names, inner, max_size=3)), max_size=5
)


def plant(tree: dict[str, object], where: Path) -> None:
    where.mkdir()
    for name, node in tree.items():
        match node:
            case ("file", bytes(data), executable):
                (where / name).write_bytes(data)
                (where / name).chmod(0o755 if executable else 0o644)
            case ("link", str(target)):
                (where / name).symlink_to(target)
            case dict():
                plant(node, where / name)
            case _:
                (where / name).mkdir()


@settings(max_examples=examples(60), deadline=None)
@given(trees)
def test_any_tree_comes_back_the_same(tree: dict[str, object]) -> None:
    """Some directory could be uploaded and come back different."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        # The last file is always there, so that there is at least one byte.
        plant({**tree, "always there": ("file", b"x" * 20_000, False)}, directory / "source")
        try:
            meta = make_metafile(directory / "source", piece_length=32768)
        except TorrentdistError as exc:
            if exc.code == "invalid_bundle" and "circle" in exc.message:
                return
            raise
        for file in meta.files:
            if file.size:
                (directory / "content" / file.path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(directory / "source" / file.path, directory / "content" / file.path)
        finish_content(meta, directory / "content")

        assert meta == parse_metafile(meta.raw)
        assert verify_content(meta, directory / "content") == []
        assert meta.digest == make_metafile(directory / "content", piece_length=32768).digest


def parsed(raw: bytes) -> Metafile | None:
    """Returns None if the bytes are refused. Any other failure is raised."""
    try:
        return parse_metafile(raw)
    except TorrentdistError as exc:
        if exc.code != "invalid_metafile":
            raise
        return None


def tracked(raw: bytes) -> bytes | None:
    try:
        return with_trackers(raw, ["http://127.0.0.1/"])
    except TorrentdistError as exc:
        if exc.code != "invalid_metafile":
            raise
        return None


@pytest.fixture(scope="module")
def meta(tmp_path_factory: pytest.TempPathFactory) -> Metafile:
    source = tmp_path_factory.mktemp("made") / "source"
    plant(
        {
            "a": ("file", b"a" * 40_000, True),
            "b": {"c": ("file", b"c", False), "e": ("dir",), "l": ("link", "../a")},
            "empty": ("file", b"", False),
        },
        source,
    )
    return make_metafile(source, piece_length=32768)


def test_any_flipped_bit_is_refused_or_changes_the_digest(meta: Metafile) -> None:
    """A damaged metafile would count as another bundle."""
    undetected = []
    for position in range(len(meta.raw) * 8):
        raw = bytearray(meta.raw)
        raw[position // 8] ^= 1 << position % 8
        found = parsed(bytes(raw))
        if found is not None and found.digest == meta.digest:
            undetected.append(position)

    assert undetected == []


def test_any_truncation_is_refused(meta: Metafile) -> None:
    """Half a metafile would be used."""
    for length in range(len(meta.raw)):
        with pytest.raises(TorrentdistError, match="refused"):
            parse_metafile(meta.raw[:length])

    assert meta == parse_metafile(meta.raw)


values: st.SearchStrategy[bencode.Value] = st.recursive(
    st.integers(-(2**40), 2**40) | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.binary(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=examples(300), deadline=None)
@given(values)
def test_every_value_comes_back_from_bencode(value: bencode.Value) -> None:
    """Decoding a metafile would change its values."""

    assert value == bencode.decode(bencode.encode(value))


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=200) | st.text("0123456789deil:-ab", max_size=60).map(str.encode))
def test_what_is_decoded_has_one_encoding_only(data: bytes) -> None:
    """Two different metafiles would mean the same."""
    try:
        value = bencode.decode(data)
    except bencode.BencodeError:
        return

    assert data == bencode.encode(value)


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_raise_nothing_else(raw: bytes) -> None:
    """Random bytes from the network would end a request with an internal error."""
    parsed(raw)
    tracked(raw)


@settings(max_examples=examples(500), deadline=None)
@given(st.data())
def test_random_values_in_any_place_raise_nothing_else(meta: Metafile, data: st.DataObject) -> None:
    """A metafile with one wrong type would end a request with an internal error."""
    top = bencode.decode(meta.raw)
    node = top
    while isinstance(node, dict) and node:
        key = data.draw(st.sampled_from(sorted(node)))
        if data.draw(st.integers(0, 3)) == 0 or not isinstance(node[key], dict) or not node[key]:
            node[key] = data.draw(values)
            break
        node = node[key]
    parsed(bencode.encode(top))
    tracked(bencode.encode(top))
