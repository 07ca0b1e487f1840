"""The file system `torrentdist://`, with fsspec's own suites, with pandas and PyArrow, and against
a bundle that still arrives."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from posixpath import join
from typing import Any

import duckdb
import fsspec
import pandas  # type: ignore[import-untyped]
import pyarrow.dataset  # type: ignore[import-untyped]
import pytest
from cluster_fixtures import Cluster, make_source, picture
from fsspec.implementations.local import LocalFileSystem
from fsspec.tests.abstract import AbstractFixtures, AbstractGetTests
from shared_clusters import shared_cluster

from torrentdist import Client
from torrentdist.doors.bundle_filesystem import ArrivingFile, TorrentdistFileSystem
from torrentdist.model.errors import TorrentdistError

Put = Callable[[Path], str]
Scenario = Callable[..., str]
"""Writes the files of some of fsspec's tests."""


@pytest.fixture
def fs(cluster: Cluster) -> TorrentdistFileSystem:
    return TorrentdistFileSystem(config_file=cluster.dir / "client.toml", skip_instance_cache=True)


@pytest.fixture
def put(cluster: Cluster) -> Iterator[Put]:
    """Uploads directories, and removes the bundles afterwards."""
    client, made = Client(config_file=cluster.dir / "client.toml"), []

    def upload(path: Path) -> str:
        made.append(f"fs-{secrets.token_hex(4)}")
        client.upload(path, id=made[-1])
        return made[-1]

    yield upload
    for name in made:
        client.remove(name)


@pytest.fixture(scope="module")
def uploaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The bundles of the suite's scenarios."""
    cluster, bundles = shared_cluster(tmp_path_factory), dict[str, str]()
    yield bundles
    for bundle in bundles.values():
        Client(config_file=cluster.dir / "client.toml").remove(bundle)


class TestGet(AbstractGetTests, AbstractFixtures):  # type: ignore[misc]  # fsspec is untyped
    """fsspec's own suite for reading. Its other suites write, which bundles refuse."""

    test_get_directory_recursive = None  # it makes its source with mkdir() and touch()

    @pytest.fixture
    def fs(self, cluster: Cluster) -> TorrentdistFileSystem:
        return TorrentdistFileSystem(config_file=cluster.dir / "client.toml", skip_instance_cache=True)

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return join

    @pytest.fixture
    def fs_path(self) -> str:
        return ""

    @pytest.fixture
    def scenario(self, cluster: Cluster, uploaded: dict[str, str], tmp_path: Path) -> Callable[[Scenario], str]:
        """Uploads a scenario of the suite when a test first needs it. Bundles never change."""

        def source(build: Scenario) -> str:
            if build.__name__ not in uploaded:
                (tmp_path / "content").write_text("a bundle holds at least one byte")
                build(LocalFileSystem(auto_mkdir=True), os.path.join, str(tmp_path))
                name = f"fs-{secrets.token_hex(4)}"
                Client(config_file=cluster.dir / "client.toml").upload(tmp_path, id=name)
                uploaded[build.__name__] = name
            return f"{uploaded[build.__name__]}/source"

        return source

    @pytest.fixture
    def local_path(self, tmp_path: Path) -> str:
        (tmp_path / "local").mkdir()
        return str(tmp_path / "local")

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self, scenario: Callable[[Scenario], str]) -> str:
        return scenario(self._bulk_operations_scenario_0)

    @pytest.fixture
    def fs_glob_edge_cases_files(self, scenario: Callable[[Scenario], str]) -> str:
        return scenario(self._glob_edge_cases_files)

    @pytest.fixture
    def fs_dir_and_file_with_same_name_prefix(self, scenario: Callable[[Scenario], str]) -> str:
        return scenario(self._dir_and_file_with_same_name_prefix)

    @pytest.fixture
    def fs_10_files_with_hashed_names(self, scenario: Callable[[Scenario], str]) -> str:
        return scenario(self._10_files_with_hashed_names)


def test_the_protocol_is_found_by_its_entry_point() -> None:
    """If this fails, `pandas.read_parquet("torrentdist://...")` knows no such protocol."""
    [found] = [point for point in entry_points(group="fsspec.specs") if point.name == "torrentdist"]

    assert TorrentdistFileSystem is found.load()
    assert TorrentdistFileSystem is fsspec.get_filesystem_class("torrentdist")


def test_bundles_are_directories(fs: TorrentdistFileSystem, put: Put, tmp_path: Path) -> None:
    """If this fails, nobody can look around."""
    bundle = put(make_source(tmp_path / "source", seed=1))

    assert bundle in fs.ls("torrentdist://", detail=False)
    assert [f"{bundle}/data.bin", f"{bundle}/sub"] == fs.ls(f"torrentdist://{bundle}", detail=False)
    assert [f"{bundle}/data.bin", f"{bundle}/sub/other.bin"] == fs.glob(f"torrentdist://{bundle}/**/*.bin")
    assert {"type": "directory", "name": bundle}.items() <= fs.info(bundle).items()
    assert 200_000 == fs.size(f"{bundle}/data.bin")


def test_a_bundle_on_this_host_is_read_from_its_files(
    cluster: Cluster, fs: TorrentdistFileSystem, put: Put, tmp_path: Path
) -> None:
    """If this fails, each read goes through another process."""
    source = make_source(tmp_path / "source", seed=2)
    bundle = put(source)
    cluster.run("bundle", "distribute", bundle).ok()

    with fs.open(f"{bundle}/data.bin") as file:
        assert Path(file.path).is_relative_to(cluster.dir)
        file.seek(150_000)
        assert (source / "data.bin").read_bytes()[150_000:150_010] == file.read(10)
    fs.get(bundle, str(tmp_path / "copy"), recursive=True)

    assert picture(source) == picture(tmp_path / "copy")


def test_a_bundle_that_is_not_here_streams_through_the_gateway(
    fs: TorrentdistFileSystem, put: Put, tmp_path: Path
) -> None:
    """If this fails, a reader waits for the whole bundle, or gets other bytes."""
    source = make_source(tmp_path / "source", seed=3)
    bundle = put(source)
    with fs.open(f"{bundle}/data.bin", block_size=64 * 1024) as file:  # nobody has asked for it before
        assert isinstance(file, ArrivingFile)
        file.seek(100_000)
        part, rest = file.read(100), file.read()

    whole = (source / "data.bin").read_bytes()
    assert whole[100_000:100_100] == part
    assert whole[100_100:] == rest
    assert whole[-10:] == fs.cat_file(f"{bundle}/data.bin", start=-10)


def test_without_a_supervisor_the_bundle_is_fetched_into_the_cache(cluster: Cluster, put: Put, tmp_path: Path) -> None:
    """If this fails, the file system needs a daemon on the host."""
    source = make_source(tmp_path / "source", seed=4)
    alone = TorrentdistFileSystem(config_file=cluster.dir / "client.toml", supervisor="", skip_instance_cache=True)

    bundle = put(source)

    assert (source / "sub/other.bin").read_bytes() == alone.cat_file(f"{bundle}/sub/other.bin")


def test_pandas_and_pyarrow_read_from_a_bundle(cluster: Cluster, put: Put, tmp_path: Path) -> None:
    """If this fails, the libraries that people use cannot open the door."""
    frame = pandas.DataFrame({"number": range(1000), "text": [f"row {n}" for n in range(1000)]})
    (tmp_path / "table").mkdir()
    frame.to_parquet(tmp_path / "table" / "part-0.parquet")
    frame.to_csv(tmp_path / "table" / "rows.csv", index=False)
    options = {"config_file": str(cluster.dir / "client.toml")}
    url = f"torrentdist://{put(tmp_path / 'table')}"
    files = fsspec.filesystem("torrentdist", **options)

    assert frame.equals(pandas.read_parquet(f"{url}/part-0.parquet", storage_options=options))
    assert frame.equals(pandas.read_csv(f"{url}/rows.csv", storage_options=options))
    table = pyarrow.dataset.dataset(f"{url[14:]}/part-0.parquet", filesystem=files).to_table()
    assert frame.equals(table.to_pandas())


def test_duckdb_reads_from_a_bundle(cluster: Cluster, fs: TorrentdistFileSystem, put: Put, tmp_path: Path) -> None:
    """If this fails, a query over a bundle needs a copy of it. Nobody has asked for it before."""
    (tmp_path / "table").mkdir()
    for part in range(2):
        pandas.DataFrame({"part": part, "number": range(1000)}).to_parquet(tmp_path / "table" / f"{part}.parquet")
    pandas.DataFrame({"part": [0, 1], "name": ["zero", "one"]}).to_csv(tmp_path / "table" / "names.csv", index=False)
    url = f"torrentdist://{put(tmp_path / 'table')}"
    with duckdb.connect() as connection:
        connection.register_filesystem(fs)

        rows = connection.sql(
            f"select name, sum(number)::int from read_parquet('{url}/*.parquet') join read_csv('{url}/names.csv') "
            "using (part) group by name order by name"
        ).fetchall()

    assert [("one", 499_500), ("zero", 499_500)] == rows


@pytest.mark.parametrize(
    "change",
    [
        lambda fs, path: fs.open(path, "wb"),
        lambda fs, path: fs.pipe(path, b"new"),
        lambda fs, path: fs.touch(path),
        lambda fs, path: fs.rm(path),
        lambda fs, path: fs.mkdir(path + "-dir"),
        lambda fs, path: fs.mv(path, path + "-moved"),
        lambda fs, path: fs.put_file(__file__, path),
        lambda fs, path: fs.cp_file(path, path + "-copy"),
    ],
    ids=["open", "pipe", "touch", "rm", "mkdir", "mv", "put", "cp"],
)
def test_every_change_is_refused(
    fs: TorrentdistFileSystem, put: Put, tmp_path: Path, change: Callable[[Any, str], object]
) -> None:
    """If this fails, a program believes that it has written into a bundle."""
    bundle = put(make_source(tmp_path / "source", seed=5))

    with pytest.raises(OSError, match="never changes"):
        change(fs, f"{bundle}/data.bin")


def test_what_is_not_there_is_a_missing_file(
    cluster: Cluster, fs: TorrentdistFileSystem, put: Put, tmp_path: Path
) -> None:
    """If this fails, libraries do not understand the error."""
    bundle = put(make_source(tmp_path / "source", seed=6))

    with pytest.raises(FileNotFoundError):
        fs.open(f"{bundle}/none")
    with pytest.raises(FileNotFoundError):
        fs.ls("torrentdist://no-such-bundle")
    with pytest.raises(IsADirectoryError):
        fs.open(f"{bundle}/sub")
    alone = TorrentdistFileSystem(config_file=cluster.dir / "client.toml", supervisor="", skip_instance_cache=True)
    for asked, path in ((fs, "no-such-bundle/file"), (alone, "no-such-bundle/file"), (fs, f"{bundle}/none")):
        assert [False] * 3 == [asked.exists(path), asked.isfile(path), asked.isdir(path)]
        for moment in (asked.created, asked.modified):
            with pytest.raises(FileNotFoundError):
                moment(path)
    assert [True, False] == [fs.isfile(f"{bundle}/data.bin"), fs.isdir(f"{bundle}/data.bin")]
    assert [False, True] == [fs.isfile(f"{bundle}/sub"), fs.isdir(f"{bundle}/sub")]
    assert fs.isdir("torrentdist://")


QUESTIONS = ("exists", "lexists", "isfile", "isdir", "info", "ls", "find", "glob", "created", "cat", "open")


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_outage_is_not_a_missing_file(cluster: Cluster, tmp_path: Path, question: str) -> None:
    """If this fails, a program takes data for missing while the cluster is away."""
    shutil.copy(cluster.dir / "client.toml", tmp_path / "client.toml")
    away = TorrentdistFileSystem(
        masters="http://127.0.0.1:9", supervisor="", config_file=tmp_path / "client.toml", skip_instance_cache=True
    )

    with pytest.raises(TorrentdistError) as caught:
        getattr(away, question)("etl-42/file")
    assert "unreachable" == caught.value.code
