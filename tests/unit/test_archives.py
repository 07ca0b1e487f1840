"""Archives of bundles: the same content gives the same bytes, however it arrived."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
import zipfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from torrentdist.bundle.metafile import FileEntry, Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.supervisor.gateway.archives import ArchiveFormat, Read, archive, lost_by_spark, room_for, size_of

LONG = "d" * 120 + "/" + "f" * 120


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("source")
    (top / "bin").mkdir()
    (top / "empty-dir").mkdir()
    (top / "bin" / "run.sh").write_text("#!/bin/sh\n")
    (top / "bin" / "run.sh").chmod(0o755)
    (top / "data.bin").write_bytes(os.urandom(300_000))
    (top / "empty").touch()
    (top / "naïve name").write_text("ü")
    (top / LONG).parent.mkdir()
    (top / LONG).write_text("deep")
    (top / "link").symlink_to("bin/run.sh")
    return top


@pytest.mark.parametrize(
    ("link", "empty_dir", "lossy"),
    [
        ("", "", set()),
        ("lib.so.1", "", {ArchiveFormat.ZIP}),
        ("../top", "", {ArchiveFormat.ZIP, ArchiveFormat.TAR}),
        ("", "empty", {ArchiveFormat.ZIP}),
    ],
)
def test_a_form_that_spark_does_not_unpack_whole_is_known(
    tmp_path: Path, link: str, empty_dir: str, lossy: set[ArchiveFormat]
) -> None:
    """An executor would run with links and directories missing, or an application would fail for a
    link that is right."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "lib.so.1").touch()
    (tmp_path / "top").write_text("some content")
    if link:
        (tmp_path / "lib" / "lib.so").symlink_to(link)
    if empty_dir:
        (tmp_path / empty_dir).mkdir()
    meta = make_metafile(tmp_path)

    assert lossy == {kind for kind in ArchiveFormat if lost_by_spark(meta, kind)}


def reader(source: Path, portion: int) -> Read:
    async def read(file: FileEntry) -> AsyncIterator[bytes]:
        data = (source / file.path).read_bytes()
        for i in range(0, len(data), portion):
            yield data[i : i + portion]

    return read


def made(meta: Metafile, kind: ArchiveFormat, source: Path, portion: int = 1 << 20) -> bytes:
    async def collect() -> bytes:
        return b"".join([part async for part in archive(meta, kind, reader(source, portion))])

    return asyncio.run(collect())


@pytest.mark.parametrize("kind", ArchiveFormat)
def test_portions_leave_no_trace(source: Path, kind: ArchiveFormat) -> None:
    """Two hosts would make different archives of one bundle, and a resumed download would mix
    them."""
    meta = make_metafile(source)

    assert made(meta, kind, source) == made(meta, kind, source, portion=777)


@pytest.mark.parametrize("kind", [ArchiveFormat.TAR, ArchiveFormat.TAR_GZ])
def test_the_size_is_known_beforehand(source: Path, kind: ArchiveFormat) -> None:
    """The Content-Length of an archive that still grows would be wrong."""
    meta = make_metafile(source)

    assert size_of(meta, kind) == len(made(meta, kind, source))


def test_no_kind_takes_more_room_than_is_reserved(source: Path) -> None:
    """An archive would push the store beyond its limit."""
    meta = make_metafile(source)

    assert max(len(made(meta, kind, source)) for kind in ArchiveFormat) <= room_for(meta)


def untar(data: bytes, dest: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # older Pythons know no filters
        tar.extractall(dest)


def unzip(data: bytes, dest: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        assert opened.testzip() is None
        opened.extractall(dest)


@pytest.mark.parametrize(
    ("kind", "unpack"), [(ArchiveFormat.TAR, untar), (ArchiveFormat.TAR_GZ, untar), (ArchiveFormat.ZIP, unzip)]
)
def test_what_is_unpacked_is_the_bundle(
    source: Path, tmp_path: Path, kind: ArchiveFormat, unpack: Callable[[bytes, Path], None]
) -> None:
    """Executors would run on other files than those that were uploaded."""
    unpack(made(make_metafile(source), kind, source), tmp_path)

    files = ["bin/run.sh", "data.bin", "empty", "naïve name", LONG]
    assert [(source / name).read_bytes() for name in files] == [(tmp_path / name).read_bytes() for name in files]
    assert (tmp_path / "empty-dir").is_dir()


def test_a_tar_keeps_links_and_modes(source: Path, tmp_path: Path) -> None:
    """A program in an archive would not be executable."""
    untar(made(make_metafile(source), ArchiveFormat.TAR_GZ, source), tmp_path)

    assert os.readlink(tmp_path / "link") == "bin/run.sh"
    assert os.access(tmp_path / "bin/run.sh", os.X_OK)
