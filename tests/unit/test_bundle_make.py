"""A directory or a file becomes a metafile that is the same everywhere, or is refused with a
reason."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import libtorrent as lt
import pytest

from torrentdist.bundle import metafile_maker
from torrentdist.bundle.directory_scan import scan
from torrentdist.bundle.metafile import FileEntry, Metafile, Symlink
from torrentdist.bundle.metafile_maker import choose_piece_length, make_metafile
from torrentdist.model.errors import TorrentdistError

KIB = 1024
MIB = 1024 * KIB
ODD_NAMES = [
    "\u202egnp.exe",
    "e\u0301",
    "\u00e9",
    "👩‍👩‍👧",
    "back\\slash",
    "...",
    ".hidden",
    "trailing.",
    "trailing ",
    " ",
    "CON",
    "a:b?*|<>\"'",
    "new\nline",
    "a",
    "A",
    "n" * 255,
    "é" * 127,
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    return source


def refused(path: Path) -> TorrentdistError:
    with pytest.raises(TorrentdistError) as caught:
        make_metafile(path)
    return caught.value


def libtorrent_view(meta: Metafile) -> tuple[str, list[tuple[int, bytes]]]:
    """Returns what libtorrent reads: the info-hash, and size and root of every file that is not
    padding."""
    info = lt.load_torrent_buffer(meta.raw).ti
    assert info is not None
    layout = info.layout()
    real = [i for i in range(layout.num_files()) if not layout.file_flags(i) & lt.file_storage.flag_pad_file]
    files = [(layout.file_size(i), layout.root(i).to_bytes() if layout.file_size(i) else b"") for i in real]
    return str(info.info_hashes().v2), files


def test_everything_that_a_bundle_keeps_is_in_the_metafile(source: Path) -> None:
    """What is downloaded would not be what was uploaded."""
    (source / "bin").mkdir()
    (source / "bin" / "run").write_bytes(b"#!/bin/sh\n")
    (source / "bin" / "run").chmod(0o700)
    (source / "bin.cfg").write_bytes(b"x" * 40_000)
    (source / "empty").touch()
    (source / "void" / "inner").mkdir(parents=True)
    (source / "latest").symlink_to("bin/run")
    (source / "bin" / "dangling").symlink_to("../nothing")
    meta = make_metafile(source, piece_length=32 * KIB)

    assert [(file.path, file.size, file.executable) for file in meta.files] == [
        ("bin/run", 10, True),
        ("bin.cfg", 40_000, False),
        ("empty", 0, False),
    ]
    assert (Symlink("bin/dangling", "../nothing"), Symlink("latest", "bin/run")) == meta.symlinks
    assert (meta.empty_dirs, meta.single_file, meta.name) == (("void/inner",), False, "content")
    assert (meta.size, meta.num_pieces, [len(layer) for layer in meta.piece_layers.values()]) == (40_010, 3, [64])


def test_the_digest_depends_on_the_content_alone(tmp_path: Path) -> None:
    """The same content would be stored and sent once for each name, time or place of its
    directory."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_bytes(b"same")
    os.utime(tmp_path / "two" / "f", (1, 1))
    (tmp_path / "link").symlink_to("two")

    assert len({make_metafile(tmp_path / name).digest for name in ("one", "two", "link")}) == 1


@pytest.mark.parametrize("what", ["bytes", "mode", "name", "symlink", "directory"])
def test_every_difference_makes_another_digest(source: Path, what: str) -> None:
    """A changed bundle would pass as the old one."""
    (source / "f").write_bytes(b"content")
    (source / "l").symlink_to("f")
    before = make_metafile(source).digest
    if what == "bytes":
        (source / "f").write_bytes(b"Content")
    elif what == "mode":
        (source / "f").chmod(0o755)
    elif what == "name":
        (source / "f").rename(source / "g")
    elif what == "symlink":
        (source / "l").unlink()
        (source / "l").symlink_to("./f")
    else:
        (source / "d").mkdir()

    assert before != make_metafile(source).digest


def test_a_single_file_is_its_own_bundle(tmp_path: Path) -> None:
    """A bundle that is one file would come back as a directory."""
    (tmp_path / "job.jar").write_bytes(b"PK")
    (tmp_path / "current.jar").symlink_to("job.jar")
    meta = make_metafile(tmp_path / "job.jar")

    assert (meta.name, meta.single_file, [file.path for file in meta.files]) == ("job.jar", True, ["job.jar"])
    assert make_metafile(tmp_path / "current.jar").name == "current.jar"


def test_a_directory_with_one_file_is_no_single_file(tmp_path: Path) -> None:
    """A directory that holds just "content" and a file of that name would be the same bundle."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "content").write_bytes(b"x")
    directory, file = make_metafile(tmp_path / "d"), make_metafile(tmp_path / "d" / "content")

    assert (directory.single_file, file.single_file) == (False, True)
    assert directory.digest != file.digest


def test_odd_names_come_through(source: Path) -> None:
    """A name in valid Unicode would be lost or changed."""
    for number, name in enumerate(ODD_NAMES):
        (source / name).write_bytes(b"%d" % number)
        (source / f"dir {number}").mkdir()
        (source / f"dir {number}" / name).write_bytes(b"x%d" % number)
    meta = make_metafile(source)
    expected = {*ODD_NAMES, *(f"dir {number}/{name}" for number, name in enumerate(ODD_NAMES))}

    assert expected == {file.path for file in meta.files}
    assert (meta.digest, [(file.size, file.root) for file in meta.files]) == libtorrent_view(meta)


@pytest.mark.parametrize(
    "size", [1, 16 * KIB - 1, 16 * KIB, 16 * KIB + 1, 64 * KIB, 64 * KIB + 1, 5 * 64 * KIB + 77, 9 * MIB + 1]
)
@pytest.mark.parametrize("piece_length", [32 * KIB, 64 * KIB, 8 * MIB])
def test_libtorrent_computes_the_same_hashes(tmp_path: Path, size: int, piece_length: int) -> None:
    """No BitTorrent client would accept our pieces."""
    source = tmp_path / "content"
    source.mkdir()
    (source / "f").write_bytes(os.urandom(size))
    (source / "g").write_bytes(os.urandom(size // 2 + 1))
    create = lt.create_torrent(lt.list_files(str(source)), piece_length, lt.create_torrent.v2_only)
    lt.set_piece_hashes(create, str(tmp_path))
    theirs: dict[bytes, Any] = dict(create.generate())
    tree = theirs[b"info"][b"file tree"]
    meta = make_metafile(source, piece_length=piece_length)

    assert theirs[b"piece layers"] == meta.piece_layers
    assert [entry[b""][b"pieces root"] for entry in tree.values()] == [file.root for file in meta.files]
    assert (meta.digest, [(file.size, file.root) for file in meta.files]) == libtorrent_view(meta)


def test_the_deepest_tree_is_read_by_libtorrent(source: Path) -> None:
    """What we accept at upload would be refused by the decoder of every peer."""
    deep = source.joinpath(*["d"] * 89)
    deep.mkdir(parents=True)
    (deep / "f").write_bytes(b"x")
    meta = make_metafile(source)

    assert (meta.digest, [(1, meta.files[0].root)]) == libtorrent_view(meta)


def test_ten_thousand_small_files(source: Path) -> None:
    """The order of files would differ from libtorrent's, or hashing would lose track of small
    ones."""
    for number in range(10_000):
        if number % 100 == 0:
            (source / f"d{number}").mkdir()
        (source / f"d{number - number % 100}" / f"f{number}").write_bytes(b"%d" % number)
    meta = make_metafile(source, packed=False)

    assert (meta.file_count, meta.num_pieces) == (10_000, 10_000)
    assert (meta.digest, [(file.size, file.root) for file in meta.files]) == libtorrent_view(meta)


def test_hard_links_are_two_files(source: Path) -> None:
    """A second name of a file would be lost."""
    (source / "a").write_bytes(b"x" * 20_000)
    os.link(source / "a", source / "b")
    a, b = make_metafile(source, piece_length=32 * KIB).files

    assert FileEntry("b", a.size, a.root, a.executable) == b


def test_progress_ends_at_the_whole(source: Path) -> None:
    """A progress bar would stop short of the end, or run past it."""
    (source / "a").write_bytes(bytes(9 * MIB))
    (source / "b").write_bytes(b"x")
    (source / "c").touch()
    seen: list[tuple[int, int]] = []
    make_metafile(source, progress=lambda done, total: seen.append((done, total)))

    assert seen[-1] == (9 * MIB + 1, 9 * MIB + 1)
    assert sorted(seen) == seen


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "d/../../x", "d/top/../x"])
def test_a_symlink_that_leaves_is_refused(source: Path, target: str) -> None:
    """A bundle would carry a way out of its directory to every host."""
    (source / "f").write_bytes(b"x")
    (source / "d").mkdir()
    (source / "d" / "top").symlink_to("..")
    (source / "link").symlink_to(target)
    error = refused(source)

    assert ("unsafe_symlink", "link", target) == (error.code, error.fields["path"], error.fields["target"])


def test_a_circle_of_symlinks_is_refused(source: Path) -> None:
    """A bundle would be made that no host accepts."""
    (source / "f").write_bytes(b"x")
    (source / "a").symlink_to("b")
    (source / "b").symlink_to("a")

    assert refused(source).code == "invalid_bundle"


def test_a_symlinked_directory_is_not_entered(source: Path, tmp_path: Path) -> None:
    """Files would be counted twice, or read from elsewhere."""
    (source / "d").mkdir()
    (source / "d" / "f").write_bytes(b"x")
    (source / "again").symlink_to("d")

    assert [file.path for file in make_metafile(source).files] == ["d/f"]


def test_fifos_sockets_and_devices_are_refused(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading would wait for ever, or the bundle would promise something that no host can
    create."""
    (source / "f").write_bytes(b"x")
    os.mkfifo(source / "pipe")
    fifo = refused(source)
    (source / "pipe").unlink()
    monkeypatch.chdir(source)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock")
        unix = refused(source)

    assert (fifo.code, fifo.fields["kind"], fifo.fields["path"]) == ("special_file", "fifo", "pipe")
    assert (unix.code, unix.fields["kind"], unix.fields["path"]) == ("special_file", "socket", "sock")
    assert (refused(Path("/dev/null")).code, refused(Path("/dev/null")).fields["kind"]) == ("special_file", "device")


@pytest.mark.parametrize("name", [b"\xff\xfe", b"caf\xe9", b"\xed\xa0\x80"])
def test_a_name_that_is_no_unicode_is_refused(source: Path, name: bytes) -> None:
    """A name would be changed on its way."""
    with open(os.fsencode(source) + b"/" + name, "wb") as out:
        out.write(b"x")

    assert refused(source).code == "bad_name"


def test_a_symlink_to_what_is_no_unicode_is_refused(source: Path) -> None:
    """Every host would refuse the metafile."""
    (source / "f").write_bytes(b"x")
    os.symlink(b"\xff", os.fsencode(source) + b"/l")

    assert refused(source).code == "bad_name"


def test_a_tree_that_is_too_deep_is_refused(source: Path) -> None:
    """Every host would refuse the metafile."""
    source.joinpath(*["d"] * 91).mkdir(parents=True)

    assert refused(source).code == "bad_name"


def test_nothing_is_no_bundle(source: Path) -> None:
    """An upload without a byte would never end."""
    (source / "f").touch()
    (source / "d").mkdir()

    assert (refused(source).code, refused(source / "f").code) == ("empty_bundle", "empty_bundle")
    assert refused(source / "missing").code == "path_not_found"
    assert refused(source / "f" / "below").code == "path_not_found"


def test_content_that_grows_meanwhile_is_refused(source: Path) -> None:
    """A metafile would describe a state that never existed."""
    (source / "a").write_bytes(bytes(9 * MIB))
    (source / "b").write_bytes(b"b")

    def append(_done: int, _total: int) -> None:
        with (source / "b").open("ab") as out:
            out.write(b"more")

    with pytest.raises(TorrentdistError) as caught:
        make_metafile(source, progress=append)

    assert (caught.value.code, caught.value.fields["path"]) == ("changed_while_reading", "b")


@pytest.mark.parametrize("what", ["rewritten", "added", "removed", "replaced", "mode", "directory", "top"])
def test_any_change_meanwhile_is_noticed(source: Path, what: str) -> None:
    """A metafile would describe a state that never existed."""
    (source / "f").write_bytes(b"x" * 100)
    (source / "g").write_bytes(b"y")
    times = (source / "f").stat()

    def disturb(_done: int, _total: int) -> None:
        if what == "rewritten":
            (source / "f").write_bytes(b"z" * 100)
        elif what == "added":
            (source / "h").write_bytes(b"x")
        elif what == "removed":
            (source / "f").unlink(missing_ok=True)
        elif what == "replaced":
            (source / "new").write_bytes(b"z" * 100)
            os.utime(source / "new", ns=(times.st_atime_ns, times.st_mtime_ns))
            (source / "new").rename(source / "f")
        elif what == "mode":
            (source / "f").chmod(0o755)
        elif what == "directory":
            (source / "d").mkdir(exist_ok=True)
        elif source.exists():
            source.rename(source.parent / "away")

    with pytest.raises(TorrentdistError) as caught:
        make_metafile(source, progress=disturb)

    assert caught.value.code == "changed_while_reading"


def test_a_file_swapped_for_a_fifo_does_not_hang(source: Path) -> None:
    """Opening a fifo would wait for a writer for ever."""
    (source / "f").write_bytes(b"x")
    found = scan(source)
    (source / "f").unlink()
    os.mkfifo(source / "f")
    with pytest.raises(TorrentdistError) as caught:
        metafile_maker._hash(found, 32 * KIB, None)

    assert caught.value.code == "changed_while_reading"


def test_an_unreadable_file_is_a_disk_error(source: Path) -> None:
    """A missing permission would look like a bug of ours."""
    (source / "f").write_bytes(b"x")
    (source / "f").chmod(0)
    program = (
        "import pathlib, sys; from torrentdist.bundle.metafile_maker import make_metafile\n"
        "make_metafile(pathlib.Path(sys.argv[1]))"
    )
    as_anybody = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") * (os.geteuid() == 0)
    done = subprocess.run([*as_anybody, sys.executable, "-c", program, source], stderr=subprocess.PIPE, check=False)

    assert b"TorrentdistError: f: Permission denied" in done.stderr


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, 32 * KIB),
        (64 * MIB, 32 * KIB),
        (64 * MIB + 2048, 64 * KIB),
        (128 * MIB, 64 * KIB),
        (1024 * MIB, 512 * KIB),
        (4096 * MIB, 2 * MIB),
        (1 << 40, 4 * MIB),
    ],
)
def test_the_piece_length_follows_the_size(size: int, expected: int) -> None:
    """Too few pieces, or too many messages, would make a broadcast slow."""

    assert expected == choose_piece_length(size)


def test_a_large_file_takes_no_memory(tmp_path: Path) -> None:
    """A bundle of 4 GiB would need its size in memory."""
    with (tmp_path / "large").open("wb") as out:
        out.truncate(512 * MIB + 1)
    program = (
        "import pathlib, sys; from torrentdist.bundle.metafile_maker import make_metafile\n"
        "meta = make_metafile(pathlib.Path(sys.argv[1]))\n"
        "status = pathlib.Path('/proc/self/status').read_text().split()\n"
        "print(meta.size, meta.num_pieces, status[status.index('VmHWM:') + 1])"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "large"], capture_output=True, check=True)
    size, pieces, peak_kib = map(int, done.stdout.split())

    assert (size, pieces) == (512 * MIB + 1, 2049)
    assert peak_kib < 100 * 1024
