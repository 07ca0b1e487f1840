"""A bundle as a package index: which files count, what the pages say, what is read of archives."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import pytest
from package_files import make_sdist, make_wheel
from patience import patient

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.host.event_loop.slow_callbacks import SlowCallback
from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.bundles.host_content import HostContent
from torrentdist.supervisor.repositories import distribution_metadata as archives
from torrentdist.supervisor.repositories.distribution_metadata import (
    DistributionMetadata,
    Read,
    sdist_metadata,
    wheel_metadata,
)
from torrentdist.supervisor.repositories.python_index import (
    HTML_TYPE,
    JSON_TYPE,
    PLAIN_TYPE,
    DistributionFacts,
    PythonIndex,
    chosen_type,
    project_page,
    projects_page,
    python_index,
)


def index_of(folder: Path) -> PythonIndex:
    return python_index(make_metafile(folder))


def write(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def test_a_wheel_of_very_many_tags_takes_no_time(tmp_path: Path) -> None:
    """If this fails, a bundle of some thousand empty files keeps all hosts that show it as an index
    busy for minutes."""
    odd, usual = ".".join("abcdefghijklmnopqrstuvwxyz"), "demo-1-cp311.cp312-abi3.none-manylinux1.linux.any.whl"
    write(tmp_path, f"demo-1-{odd}-{odd}-{odd}.whl", usual)

    assert [usual] == [*index_of(tmp_path)["demo"]]


def test_distributions_are_found_in_every_folder(tmp_path: Path) -> None:
    """If this fails, pip does not see a wheel that lies in a folder of the bundle."""
    found = index_of(
        write(
            tmp_path,
            "My.Pkg_Name-1.0+cu118-py3-none-any.whl",
            "deep/down/my_pkg_name-1.1.tar.gz",
            "other-2-py3-none-any.whl",
        )
    )

    assert ["my-pkg-name", "other"] == list(found)
    assert {"My.Pkg_Name-1.0+cu118-py3-none-any.whl", "my_pkg_name-1.1.tar.gz"} == set(found["my-pkg-name"])
    assert "deep/down/my_pkg_name-1.1.tar.gz" == found["my-pkg-name"]["my_pkg_name-1.1.tar.gz"].file.path


def test_other_names_are_left_out(tmp_path: Path) -> None:
    """If this fails, a client stumbles over a name that is no distribution, or runs what is in
    it."""
    names = ["README.md", "x.whl", "a<b>-1-py3-none-any.whl", "we ird-1.tar.gz", "föö-1.tar.gz", "data.zip", "x-1.tgz"]

    assert {} == index_of(write(tmp_path, *names))


def test_one_name_in_two_folders_is_the_first(tmp_path: Path) -> None:
    """If this fails, two hosts offer different files under one name."""
    found = index_of(write(tmp_path, "b/x-1-py3-none-any.whl", "a/x-1-py3-none-any.whl"))

    assert "a/x-1-py3-none-any.whl" == found["x"]["x-1-py3-none-any.whl"].file.path


def test_a_symlink_to_a_wheel_counts(tmp_path: Path) -> None:
    """If this fails, a folder of links to wheels is empty for pip."""
    write(tmp_path, "blobs/1")
    os.symlink("blobs/1", tmp_path / "x-1-py3-none-any.whl")

    assert "blobs/1" == index_of(tmp_path)["x"]["x-1-py3-none-any.whl"].file.path


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", PLAIN_TYPE),
        ("*/*", PLAIN_TYPE),
        ("image/png", PLAIN_TYPE),
        ("text/html", PLAIN_TYPE),
        (f"{JSON_TYPE}, {HTML_TYPE};q=0.2, text/html;q=0.01", JSON_TYPE),
        (f"text/html;q=0.01, {HTML_TYPE} ; q=0.2", HTML_TYPE),
        ("application/vnd.pypi.simple.latest+json", JSON_TYPE),
        (f"{JSON_TYPE};q=0, text/html;q=0.1", PLAIN_TYPE),
        (f"{JSON_TYPE};q=lots, {HTML_TYPE}", HTML_TYPE),
    ],
)
def test_the_client_chooses_the_type(accept: str, kind: str) -> None:
    """If this fails, pip or uv gets a page that it cannot read."""
    assert kind == chosen_type(accept)


class Links(HTMLParser):
    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.found: list[dict[str, str | None]] = []
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found.append(dict(attrs))


def test_both_forms_of_a_page_say_the_same(tmp_path: Path) -> None:
    """If this fails, what a client sees depends on the form that it asks for."""
    files = list(index_of(write(tmp_path, "x-1!2+a-py3-none-any.whl"))["x"].values())
    listed = [(files[0], DistributionFacts("ab" * 32, "cd" * 32, '>=3.9,<"4'))]

    (link,) = Links(project_page("x", listed, HTML_TYPE)).found
    (entry,) = json.loads(project_page("x", listed, JSON_TYPE))["files"]

    assert f"{entry['url']}#sha256={entry['hashes']['sha256']}" == link["href"]
    assert '>=3.9,<"4' == link["data-requires-python"] == entry["requires-python"]
    assert f"sha256={entry['core-metadata']['sha256']}" == link["data-core-metadata"] == link["data-dist-info-metadata"]
    assert files[0].file.size == entry["size"]


def test_json_has_the_older_name_of_the_metadata_nowhere(tmp_path: Path) -> None:
    """If this fails, Debian 12's pip 23.0.1 installs nothing from a bundle: it ends with a
    TypeError."""
    files = list(index_of(write(tmp_path, "x-1-py3-none-any.whl"))["x"].values())
    page = project_page("x", [(files[0], DistributionFacts("ab" * 32, "cd" * 32))], JSON_TYPE)

    assert b"core-metadata" in page
    assert b"dist-info-metadata" not in page


def test_an_index_of_nothing_is_empty() -> None:
    """If this fails, a bundle without wheels is an error."""
    assert [] == Links(projects_page([], HTML_TYPE)).found
    assert [] == json.loads(projects_page([], JSON_TYPE))["projects"]


# archives


def reader_of(path: Path) -> tuple[Read, int]:
    data = path.read_bytes()
    return (lambda start, end: data[start:end]), len(data)


def test_the_metadata_of_wheels_and_sdists_is_found(tmp_path: Path) -> None:
    """If this fails, clients download whole wheels to learn what they need."""
    wheel, sdist = make_wheel(tmp_path, "x", python=">=3.8"), make_sdist(tmp_path, "y", python=">=3.9")

    found = [wheel_metadata(*reader_of(wheel)), sdist_metadata(*reader_of(sdist))]

    assert [">=3.8", ">=3.9"] == [archives.requires_python(data) for data in found if data is not None]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (b"Name: x\nRequires-Python: >=3.8\n\n", ">=3.8"),
        (b"requires-python:>=3.8,\r\n  <4\r\nName: x\r\n\r\n", ">=3.8, <4"),
        (b"Description: long\n        text\n        Requires-Python: 2\nRequires-Python: 3\n", "3"),
        (b"Requires-Python: 3\nRequires-Python: 4\n", "3"),
        (b"Name: x\n\nRequires-Python: >=3.8\n", ""),
        (b"Requires-Python: " + b"3" * 201, ""),
        (b"Requires-Python: \xff\x00", ""),
        (b"A:\n" * 40_000 + b"Requires-Python: 3\n", "3"),
        (b"", ""),
    ],
)
def test_the_python_that_a_file_needs_is_found(metadata: bytes, expected: str) -> None:
    """If this fails, pip chooses a version that does not run."""
    assert expected == archives.requires_python(metadata)


@pytest.mark.anyio
async def test_long_metadata_holds_up_nothing(tmp_path: Path, quick_callbacks: list[SlowCallback]) -> None:
    """F11: if this fails, a bundle of some kilobytes stops a host's daemon for seconds."""
    texts = "A:\n" * (archives.MOST_METADATA // 3), "Name: x\n\n" + "text\n" * (archives.MOST_METADATA // 5 - 2)
    for number, text in enumerate(texts):
        with zipfile.ZipFile(tmp_path / f"x-{number}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
            await asyncio.to_thread(archive.writestr, "x-1.dist-info/METADATA", text)
    meta, metadata = make_metafile(tmp_path), DistributionMetadata()
    content = HostContent(meta, tmp_path, lambda: True, lambda: None, lambda: None, sound)

    hashes = [await metadata.sha256(content, file) for file in meta.files]
    versions = [await metadata.requires_python(content, file) for file in meta.files]

    assert [hashlib.sha256(text.encode()).hexdigest() for text in texts] == hashes
    assert ["", ""] == versions


async def sound(path: str) -> bool:
    return True


EXTENDED = """
import gzip, sys, tarfile
from torrentdist.supervisor.repositories.distribution_metadata import sdist_metadata
header = tarfile.TarInfo("x")
header.type, header.size = tarfile.XHDTYPE, 1024 * 1024
plain = tarfile.TarInfo("x-1/PKG-INFO")
plain.size = 5
data = gzip.compress(header.tobuf() + b"1" * header.size + plain.tobuf() + b"found".ljust(512, bytes(1)) + bytes(1024))
sys.stdout.buffer.write(sdist_metadata(lambda start, end: data[start:end], len(data)) or b"")
"""


def test_an_extended_header_holds_up_nothing() -> None:
    """F11: if this fails, an sdist of a kilobyte stops a whole daemon for hours."""
    ran = subprocess.run([sys.executable, "-c", EXTENDED], capture_output=True, timeout=patient(60))

    assert b"found" == ran.stdout, ran.stderr


@pytest.mark.parametrize("kind", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_sdists_of_every_format_are_read(tmp_path: Path, kind: int) -> None:
    """If this fails, pip does not know which Python an sdist needs."""
    (tmp_path / "PKG-INFO").write_text("Requires-Python: 3\n")
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz", format=kind) as archive:
        archive.addfile(tarfile.TarInfo("x-1"))
        link = tarfile.TarInfo("x-1/link")
        link.type, link.linkname = tarfile.SYMTYPE, "a"
        archive.addfile(link)
        for size in (1, 512, 513):
            before = tarfile.TarInfo(f"x-1/{'long/' * 19 * (kind != tarfile.USTAR_FORMAT)}{size}")
            before.size = size
            archive.addfile(before, io.BytesIO(bytes(size)))
        archive.add(tmp_path / "PKG-INFO", "x-1/PKG-INFO")

    assert b"Requires-Python: 3\n" == sdist_metadata(*reader_of(tmp_path / "x.tar.gz"))


def test_an_sdist_may_be_a_zip(tmp_path: Path) -> None:
    """If this fails, pip installs an sdist that ends with .zip under a Python that it does not run
    on."""
    with zipfile.ZipFile(tmp_path / "x-1.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x-1/setup.py", "")
        archive.writestr("x-1/x.egg-info/PKG-INFO", "Requires-Python: 2\n")
        archive.writestr("x-1/PKG-INFO", "Requires-Python: 3\n")

    assert b"Requires-Python: 3\n" == sdist_metadata(*reader_of(tmp_path / "x-1.zip"))


def test_damaged_and_hostile_archives_have_no_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, one damaged wheel hides all others of its project, or fills the memory."""
    wheel = make_wheel(tmp_path, "x")
    whole = wheel.read_bytes()
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x-1.dist-info/METADATA", b"a" * 100_000)
    monkeypatch.setattr(archives, "MOST_METADATA", 50_000)
    for name, data in {"cut": whole[:-30], "none": b"", "text": b"no archive", "bomb": bomb.getvalue()}.items():
        (tmp_path / name).write_bytes(data)

        assert wheel_metadata(*reader_of(tmp_path / name)) is None, name
        assert sdist_metadata(*reader_of(tmp_path / name)) is None, name


def test_little_is_unpacked_of_an_sdist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F11: if this fails, an sdist that unpacks to gigabytes fills the memory."""
    monkeypatch.setattr(archives, "MOST_UNPACKED", 50_000)
    first, named = tarfile.TarInfo("x-1/a"), tarfile.TarInfo("x-1/PKG-INFO")
    for size, expected in ((1_000, b""), (100_000, None)):
        first.size = size
        with tarfile.open(tmp_path / "x-1.tar.gz", "w:gz") as archive:
            archive.addfile(first, io.BytesIO(bytes(size)))
            archive.addfile(named)

        assert expected == sdist_metadata(*reader_of(tmp_path / "x-1.tar.gz"))


def test_little_is_read_of_a_large_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F11: if this fails, a wheel with a huge list of files is read into memory."""
    monkeypatch.setattr(archives, "MOST_READ", 1000)
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
        for number in range(100):
            archive.writestr(f"file-{number}", b"")
        archive.writestr("x-1.dist-info/METADATA", b"")

    assert wheel_metadata(*reader_of(tmp_path / "x.whl")) is None


def test_a_disk_that_fails_for_a_moment_is_no_damage(tmp_path: Path) -> None:
    """F11: if this fails, "no metadata" is kept on disk as a fact about a sound wheel."""

    async def fails(path: str) -> bool:
        raise OSError(errno.EIO, "the disk fails")

    make_wheel(tmp_path, "x")
    make_sdist(tmp_path, "y")
    meta = make_metafile(tmp_path)
    content = HostContent(meta, tmp_path, lambda: True, lambda: None, lambda: None, fails)
    for file in meta.files:
        with pytest.raises(TorrentdistError) as caught:
            asyncio.run(DistributionMetadata().of(content, file))

        assert "disk_error" == caught.value.code


# archives of bundles that arrive


def arriving(folder: Path, directory: Path) -> HostContent:
    """The bundle of this folder, of which the host has what is in the directory."""
    meta = make_metafile(folder, piece_length=32 * 1024)
    return HostContent(meta, directory, lambda: False, lambda: None, lambda: None, sound)


@pytest.mark.anyio
async def test_a_bundle_that_does_not_arrive_delays_no_other(tmp_path: Path) -> None:
    """If this fails, some requests to a stalled bundle stop the package indexes of all."""
    for number in range(20):
        make_wheel(tmp_path / "stalled", "x", f"1.{number}")
    make_wheel(tmp_path / "here", "y", python=">=3.9")
    metadata, stalled = DistributionMetadata(), arriving(tmp_path / "stalled", tmp_path / "empty")
    here = arriving(tmp_path / "here", tmp_path / "here")
    waiting = [asyncio.create_task(metadata.of(stalled, file)) for file in stalled.meta.files]
    try:
        await asyncio.wait(waiting, timeout=0.5)
        async with asyncio.timeout(patient(10)):
            found = await metadata.requires_python(here, here.meta.files[0])
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)

    assert ">=3.9" == found
    assert all(task.cancelled() for task in waiting)


@pytest.mark.anyio
@pytest.mark.parametrize("is_wheel", [True, False])
async def test_metadata_is_read_while_the_rest_arrives(tmp_path: Path, is_wheel: bool) -> None:
    """If this fails, the metadata of a large file waits for all of it, or is never found."""
    (tmp_path / "in").mkdir()
    named = (make_wheel if is_wheel else make_sdist)(tmp_path / "in", "x", python=">=3.9")
    small, rest = named.read_bytes(), os.urandom(1024 * 1024)
    # A zip archive is read from its end, which may follow anything.
    whole = rest + small if is_wheel else small + rest
    named.write_bytes(whole)
    start = len(whole) - 64 * 1024 if is_wheel else 0
    part = whole[start : start + 64 * 1024]
    arrived = tmp_path / "arriving" / named.name
    arrived.parent.mkdir()
    arrived.write_bytes(bytes(len(whole)))
    content, metadata = arriving(tmp_path / "in", arrived.parent), DistributionMetadata()
    task = asyncio.create_task(metadata.requires_python(content, content.meta.files[0]))
    await asyncio.wait([task], timeout=0.5)
    early = task.done()
    arrived.write_bytes(bytes(start) + part + bytes(len(whole) - start - len(part)))
    async with asyncio.timeout(patient(30)):
        found = await task

    assert not early
    assert ">=3.9" == found
