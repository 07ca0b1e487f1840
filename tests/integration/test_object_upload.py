"""A bundle from the objects of a real S3 server, which stream through the uploader."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from cluster_fixtures import Cluster, picture
from s3_servers import s3_options, s3_server, s3_variables

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.testing.sample_trees import some_bytes, write_tree

TREE = {"big.bin": some_bytes(9_000_000, 1), "a/small": b"x" * 10, "a/b/middle": some_bytes(300_000, 2), "a.txt": b"y"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server.url


@pytest.fixture
def bucket(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, str]:
    """A bucket whose prefix `data` holds TREE, and the file system that writes to it."""
    for name, value in s3_variables(server).items():
        monkeypatch.setenv(name, value)
    storage, name = fsspec.filesystem("s3", **s3_options(server)), f"b-{secrets.token_hex(6)}"
    storage.mkdir(name)
    write_tree(tmp_path / "source", TREE)
    for path, data in TREE.items():
        storage.pipe_file(f"{name}/data/{path}", data)
    return storage, f"s3://{name}/data"


def test_a_prefix_becomes_a_bundle(cluster: Cluster, bucket: tuple[Any, str], tmp_path: Path) -> None:
    """A user with data in S3 would have to copy all of it to a disk first. It takes long because
    the S3 server starts."""
    _, url = bucket
    view = cluster.run("upload", url, "--id", "of-s3", "--min-replicas", 3).ok()
    again = cluster.run("upload", url, "--id", "of-s3").ok()
    cluster.run("download", "of-s3", tmp_path / "got", "--no-supervisor").ok()

    assert make_metafile(tmp_path / "source", packed=False).digest == view["digest"] == again["digest"]
    assert (3, True, 4) == (view["replicas"], view["achieved"], view["files"])
    assert picture(tmp_path / "source") == picture(tmp_path / "got")


def test_the_page_begins_with_commands_that_work(cluster: Cluster, bucket: tuple[Any, str], tmp_path: Path) -> None:
    """The first thing that a reader tries would fail."""
    page = (Path(__file__).parents[2] / "docs" / "s3.md").read_text()
    session = re.findall(r"(?m)^    torrentdist (.*)$", page.partition("\n## ")[0])
    places = {"s3://models/bert": bucket[1], "./bert-7": str(tmp_path / "bert-7")}
    for line in session:
        cluster.run(*(places.get(word, word) for word in shlex.split(line))).ok()

    assert picture(tmp_path / "source") == picture(tmp_path / "bert-7")


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("{bucket}/nothing", 3, "does not exist"),
        ("nosuch://bucket/x", 2, "nosuch"),
        ("{other}/x", 3, "does not exist"),
    ],
)
def test_what_cannot_be_read_is_said(
    cluster: Cluster, bucket: tuple[Any, str], url: str, code: int, words: str
) -> None:
    """A user would see a stack trace of a library that he has never heard of."""
    place = url.format(bucket=bucket[1], other="s3://there-is-no-such-bucket")
    ran = cluster.run("upload", place, "--id", "of-nothing")

    assert code == ran.code
    assert words in ran.stderr
