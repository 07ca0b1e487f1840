"""Small files travel in packs, and every byte, name and mode of a tree comes out of them again."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libtorrent as lt
import pytest

from torrentdist.bundle import bencode, metafile
from torrentdist.bundle.content_check import finish_content, verify_content
from torrentdist.bundle.metafile import Metafile, parse_metafile, read_files
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.bundle.packs.pack_files import write_files, write_packs
from torrentdist.bundle.packs.pack_plan import FEWEST, MOST_LOOSE, pack_counts, small_limit
from torrentdist.bundle.packs.unpacking import unpack
from torrentdist.model.errors import TorrentdistError
from torrentdist.swarm.engine.preparation import ready_to_seed
from torrentdist.swarm.membership.wire_metafile import hash_on_wire
from torrentdist.swarm.membership.wire_torrent import put_ca
from torrentdist.testing.sample_trees import ODD_NAMES, some_bytes, write_tree

KIB = 1024
MANY = {f"d{number % 7}/s{number % 3}/f{number:03}": some_bytes(700 + number * 5, number) for number in range(300)}
LARGE = {"large.bin": some_bytes(300 * KIB, 1), "d1/larger than small": some_bytes(40 * KIB, 2)}


def make_tree(top: Path, files: dict[str, bytes] | None = None) -> Path:
    """Makes a tree with many small files and one of everything else."""
    write_tree(top, {**MANY, **LARGE, **ODD_NAMES, "empty": b"", "d1/a.b": b"", **(files or {})})
    (top / "d1/s1/f001").chmod(0o755)
    (top / "large.bin").chmod(0o755)
    (top / "void/deep").mkdir(parents=True)
    (top / "link").symlink_to("d1/s1/f001")
    return top


def shape(meta: Metafile) -> object:
    return meta.files, meta.symlinks, meta.empty_dirs, meta.size


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("packs") / "source")


@pytest.fixture(scope="module")
def meta(source: Path) -> Metafile:
    return make_metafile(source)


def arrived(meta: Metafile, source: Path, home: Path) -> Path:
    """Makes what the swarm brings: large files and packs."""
    write_packs(meta, source, home)
    for file in meta.wire_files:
        if not file.is_pack:
            (home / file.place).parent.mkdir(parents=True, exist_ok=True)
            (home / file.place).write_bytes((source / file.path).read_bytes())
    return home / "content"


@pytest.mark.case("N1")
def test_packs_say_the_same_of_a_tree_as_files_do(meta: Metafile, source: Path) -> None:
    """A name, a mode, a link or an empty directory would be lost in a pack."""
    plain = make_metafile(source, packed=False)

    assert (True, False) == (bool(meta.packed.files), bool(plain.packed.files))
    assert shape(plain) == shape(meta)


def test_a_swarm_keeps_nothing_of_each_small_file(meta: Metafile) -> None:
    """A host with ten environments would hold half a million files in memory."""
    kept = meta.for_swarm

    assert (meta.digest, meta.size, meta.num_pieces) == (kept.digest, kept.size, kept.num_pieces)
    assert (meta.wire_files, meta.piece_layers) == (kept.wire_files, kept.piece_layers)
    assert ((), ((), ())) == (kept.files, kept.packed)


def test_a_transfer_has_the_metafile(meta: Metafile, tmp_path: Path) -> None:
    """If this fails, nothing joins a swarm with TLS, and an uploader offers masters an empty
    metafile."""
    params = ready_to_seed(meta, tmp_path).params
    put_ca(params, meta.for_swarm, "a CA")

    assert params.info_hashes.v2.to_bytes().hex() == hash_on_wire(meta.raw, "a CA")


@pytest.mark.case("N1")
def test_equal_trees_have_one_digest(meta: Metafile, tmp_path: Path) -> None:
    """The same environment, built on two machines, would be two bundles."""
    again = make_tree(tmp_path / "again", dict(reversed(MANY.items())))

    assert meta.digest == make_metafile(again).digest


@pytest.mark.case("N1")
def test_a_tree_comes_out_of_its_packs_as_it_was(meta: Metafile, source: Path, tmp_path: Path) -> None:
    """A host would run other files than were uploaded."""
    content = arrived(meta, source, tmp_path)
    write_files(meta, tmp_path)
    finish_content(meta, content)

    assert [] == verify_content(meta, content)
    assert 0o555 == stat.S_IMODE((content / "d1/s1/f001").stat().st_mode)


def test_libtorrent_reads_large_files_and_packs(meta: Metafile) -> None:
    """No peer could join the swarm, or libtorrent would still see every file."""
    params = lt.load_torrent_buffer(meta.raw)
    assert params.ti is not None
    layout = params.ti.layout()
    sizes = [
        layout.file_size(number)
        for number in range(layout.num_files())
        if not layout.file_flags(number) & lt.file_storage.flag_pad_file
    ]

    assert (meta.digest, [file.size for file in meta.wire_files]) == (str(params.info_hashes.v2), sizes)
    assert len(sizes) < 20


def test_an_index_of_files_sees_the_packed_ones_and_the_packs(meta: Metafile) -> None:
    """A later version would not find the files that it has in common with this one."""
    found = {file.path.decode(): file.root for file in read_files(meta.raw)}
    packs = {file.path: file.root for file in meta.wire_files if file.is_pack}

    assert {file.path: file.root for file in meta.files} | packs == found


def test_a_changed_file_changes_its_pack_and_rarely_the_next(meta: Metafile, tmp_path: Path) -> None:
    """A patch of one file would move all small files again."""
    files = {f"d/f{number:05}": some_bytes(4000, number) for number in range(2000)}
    write_tree(tmp_path, files)
    before = {pack.root for pack in make_metafile(tmp_path).wire_files}
    (tmp_path / "d/f01000").write_bytes(some_bytes(4000, 99_999))
    after = {pack.root for pack in make_metafile(tmp_path).wire_files}

    assert len(after) > 4
    assert len(after - before) <= 2


def test_few_small_files_are_not_packed() -> None:
    """A stock client would get packs for a job of ten files."""
    assert [0, 32 * KIB] == [small_limit([10] * count, 32 * KIB) for count in (FEWEST, FEWEST + 1)]


def test_many_larger_files_are_packed_too() -> None:
    """Files just over the limit would slow the swarm down as small ones did."""
    assert 128 * KIB == small_limit([100 * KIB] * (MOST_LOOSE + 1), 1024 * KIB)


def test_every_file_is_in_one_pack() -> None:
    """A file would be in no pack, or an empty one would make an empty pack."""
    files = [(size, some_bytes(32, number)) for number, size in enumerate([0, 9, 0, 30_000, 0] * 500)]

    assert len(files) == sum(pack_counts(files))


@pytest.mark.case("N2")
def test_what_an_interrupted_process_wrote_is_written_anew(meta: Metafile, source: Path, tmp_path: Path) -> None:
    """After a crash, a file with the right size and wrong bytes would be published."""
    content = arrived(meta, source, tmp_path)
    write_files(meta, tmp_path)
    victim = content / "d1/s1/f001"
    victim.chmod(0o644)
    victim.write_bytes(bytes(victim.stat().st_size))
    (content / "d2/s2").rename(content / "elsewhere")
    (content / "d2/s2").write_bytes(b"in the way")
    write_files(meta, tmp_path)
    finish_content(meta, content)

    assert [] == verify_content(meta, content)


@pytest.mark.case("N2")
def test_a_directory_in_the_place_of_a_file_makes_way(meta: Metafile, source: Path, tmp_path: Path) -> None:
    """A damaged bundle would never be mended."""
    content = arrived(meta, source, tmp_path)
    (content / "d1/s1/f001/inside").mkdir(parents=True)
    write_files(meta, tmp_path)
    finish_content(meta, content)

    assert [] == verify_content(meta, content)


@pytest.mark.case("E5")
def test_a_flipped_bit_in_a_pack_is_no_file(meta: Metafile, source: Path, tmp_path: Path) -> None:
    """Wrong bytes would come out of a pack unseen."""
    arrived(meta, source, tmp_path)
    pack = tmp_path / "packs/00000"
    data = bytearray(pack.read_bytes())
    data[12_345] ^= 1
    pack.write_bytes(data)
    with pytest.raises(TorrentdistError) as caught:
        write_files(meta, tmp_path)

    assert "corrupt" == caught.value.code


def test_a_file_that_changed_since_it_was_hashed_is_in_no_pack(tmp_path: Path) -> None:
    """An upload would offer bytes that nobody accepts, and never end."""
    top = make_tree(tmp_path / "top")
    meta = make_metafile(top)
    (top / "d1/s1/f001").write_bytes(bytes((top / "d1/s1/f001").stat().st_size))
    with pytest.raises(TorrentdistError) as caught:
        write_packs(meta, top, tmp_path / "home")

    assert ("changed_while_reading", "d1/s1/f001") == (caught.value.code, caught.value.fields["path"])


def test_a_link_in_the_place_of_a_small_file_is_in_no_pack(tmp_path: Path) -> None:
    """A link that somebody puts there during an upload would have a file outside of it read."""
    top = make_tree(tmp_path / "top")
    meta = make_metafile(top)
    (top / "d1/s1/f001").rename(tmp_path / "outside")
    (top / "d1/s1/f001").symlink_to(tmp_path / "outside")
    with pytest.raises(TorrentdistError) as caught:
        write_packs(meta, top, tmp_path / "home")

    assert ("changed_while_reading", "d1/s1/f001") == (caught.value.code, caught.value.fields["path"])


Tree = dict[bytes, Any]


def with_column(key: bytes, change: Callable[[Any], Any]) -> Callable[[Tree], None]:
    def apply(top: Tree) -> None:
        top[b"manifest"][key] = change(top[b"manifest"][key])

    return apply


def without(key: bytes) -> Callable[[Tree], None]:
    return lambda top: top[b"manifest"].pop(key)


def swap_packs(top: Tree) -> None:
    packs = top[b"info"][b"file tree"][b"packs"]
    packs[b"7"] = packs.pop(b"00000")


FALSE_CLAIMS: dict[str, Callable[[Tree], object]] = {
    "name with a slash": with_column(b"names", lambda names: names.replace(b"f001", b"f/01", 1)),
    "name that leads up": with_column(b"names", lambda names: names.replace(b"\0f000\0", b"\0..\0", 1)),
    "names out of order": with_column(b"names", lambda names: names.replace(b"f000", b"f999", 1)),
    "directory that leads out": with_column(b"directories", lambda text: text.replace(b"d1/s0", b"../s0", 1)),
    "directories out of order": with_column(b"directories", lambda text: text.replace(b"d1/s0", b"d9/s0", 1)),
    "one name more": with_column(b"names", lambda names: names + b"\0z"),
    "one size less": with_column(b"sizes", lambda sizes: sizes[:-4]),
    "half a size": with_column(b"sizes", lambda sizes: sizes[:-2]),
    "a size beyond its pack": with_column(b"sizes", lambda sizes: sizes[:-4] + b"\xff\x00\x00\x00"),
    "one root less": with_column(b"roots", lambda roots: roots[:-32]),
    "a bit missing": with_column(b"packed executable", lambda bits: bits[:-1]),
    "a directory without files": with_column(b"counts", lambda counts: bytes(4) + counts[4:]),
    "a pack without files": with_column(b"packs", lambda packs: packs + bytes(4)),
    "packs of other files": with_column(b"packs", lambda packs: packs + packs),
    "a column that is a list": with_column(b"names", lambda names: [names]),
    "a column missing": without(b"roots"),
    "a link out of the bundle": with_column(b"symlinks", lambda links: links | {b"x": b"../../etc"}),
    "packs with other names": swap_packs,
}


@pytest.mark.parametrize("claim", FALSE_CLAIMS)
def test_a_false_claim_about_packs_is_refused(meta: Metafile, claim: str) -> None:
    """A hostile metafile could write outside of its bundle, or crash a host."""
    top: Any = bencode.decode(meta.raw)
    FALSE_CLAIMS[claim](top)
    top[b"info"][b"torrentdist"][b"manifest"] = hashlib.sha256(bencode.encode(top[b"manifest"])).digest()
    with pytest.raises(TorrentdistError) as caught:
        parse_metafile(bencode.encode(top))

    assert "invalid_metafile" == caught.value.code


def test_a_pack_is_never_larger_than_may_be_read_at_once(meta: Metafile, monkeypatch: pytest.MonkeyPatch) -> None:
    """A metafile of a few bytes could name a pack of zeros that takes all memory of every host."""
    largest = max(file.size for file in meta.wire_files if file.is_pack)
    monkeypatch.setattr(metafile, "MAX_PACK_BYTES", largest)
    taken = parse_metafile(meta.raw)
    monkeypatch.setattr(metafile, "MAX_PACK_BYTES", largest - 1)
    with pytest.raises(TorrentdistError, match=f"more than {largest - 1} bytes"):
        parse_metafile(meta.raw)

    assert meta == taken


def test_a_manifest_that_the_digest_does_not_cover_is_refused(meta: Metafile) -> None:
    """Anybody could change the names in a signed bundle."""
    top: Any = bencode.decode(meta.raw)
    top[b"manifest"][b"names"] = top[b"manifest"][b"names"].replace(b"f001", b"f00z", 1)
    with pytest.raises(TorrentdistError) as caught:
        parse_metafile(bencode.encode(top))

    assert "not the one that its info dictionary names" in caught.value.message


def test_files_are_read_through_no_symlink(meta: Metafile, source: Path, tmp_path: Path) -> None:
    """A symlink in a host's directory would let small files be written outside of it."""
    arrived(meta, source, tmp_path / "home")
    (tmp_path / "outside").mkdir()
    (tmp_path / "home/content/d1").rename(tmp_path / "aside")
    (tmp_path / "home/content/d1").symlink_to(tmp_path / "outside")
    write_files(meta, tmp_path / "home")

    assert [] == os.listdir(tmp_path / "outside")


def test_what_a_stock_client_fetched_becomes_the_tree(meta: Metafile, source: Path, tmp_path: Path) -> None:
    """A user of another BitTorrent client would be left with packs."""
    write_packs(meta, source, tmp_path / "content")
    for name in LARGE:
        (tmp_path / "content/files" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "content/files" / name).write_bytes(LARGE[name])
    unpack(meta, tmp_path, tmp_path / "dest")

    assert meta.digest == make_metafile(tmp_path / "dest").digest
    assert ["content", "dest"] == sorted(os.listdir(tmp_path))
