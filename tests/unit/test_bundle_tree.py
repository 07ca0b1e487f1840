"""Looking up and listing the paths of a bundle, without a disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec import structs

from torrentdist.bundle.bundle_tree import BundleTree, NodeKind
from torrentdist.bundle.metafile import Symlink
from torrentdist.bundle.metafile_maker import make_metafile


@pytest.fixture
def top(tmp_path: Path) -> Path:
    top = tmp_path / "top"
    (top / "lib" / "deep").mkdir(parents=True)
    (top / "empty").mkdir()
    (top / "lib" / "code.py").write_text("code")
    (top / "lib" / "deep" / "data").write_bytes(b"12345")
    (top / "lib64").symlink_to("lib")
    (top / "lib" / "deep" / "up").symlink_to("..")
    (top / "current").symlink_to("lib64/deep/data")
    (top / "broken").symlink_to("nowhere")
    return top


@pytest.fixture
def tree(top: Path) -> BundleTree:
    return BundleTree(make_metafile(top))


@pytest.mark.parametrize(
    "path",
    [
        "",
        "lib",
        "lib64",
        "lib64/deep/data",
        "current",
        "broken",
        "empty",
        "lib/deep/up/code.py",
        "lib/none",
        "lib/code.py",
    ],
)
def test_a_lookup_finds_what_the_kernel_finds(top: Path, tree: BundleTree, path: str) -> None:
    """If this fails, a program reads another file through `torrentdist://` than from the disk."""
    found, real = tree.find(path), top / path

    assert real.exists() == (found is not None)
    if found is not None:
        assert real.is_dir() == (found.kind is NodeKind.DIRECTORY)
        assert (real.stat().st_size if real.is_file() else None) == (found.file.size if found.file else None)
        assert (os.readlink(real) if real.is_symlink() else None) == found.target


def test_a_listing_names_the_entries_of_a_directory(top: Path, tree: BundleTree) -> None:
    """If this fails, `glob` misses files."""
    assert sorted(os.listdir(top)) == [node.path for node in tree.list("")]
    assert ["lib64/code.py", "lib64/deep"] == [node.path for node in tree.list("lib64")]
    assert [] == tree.list("empty")
    assert ["lib64/deep"] == [node.path for node in tree.entries("lib64", "d")]
    assert [[]] * 2 == [list(tree.entries(path, "z")) for path in ("lib64", "none")]


def test_a_walk_meets_each_file_once_although_a_symlink_leads_up(tree: BundleTree) -> None:
    """If this fails, a walk through a bundle never ends."""
    ahead, files = [""], []
    while ahead:
        for node in tree.list(ahead.pop()):
            if node.kind is NodeKind.DIRECTORY:
                ahead.append(node.path)
            elif node.kind is NodeKind.FILE:
                files.append(node.path)

    assert ["current", "lib/code.py", "lib/deep/data"] == sorted(files)


def test_a_symlink_to_a_directory_or_to_nothing_is_listed_as_a_link(tree: BundleTree) -> None:
    """If this fails, a reader opens a directory as a file."""
    kinds = {node.path: node.kind for node in tree.list("")}

    assert NodeKind.LINK == kinds["lib64"]
    assert NodeKind.LINK == kinds["broken"]
    assert NodeKind.FILE == kinds["current"]


@pytest.mark.parametrize(("links", "is_found"), [(40, True), (41, False)])
def test_as_many_symlinks_are_followed_as_the_kernel_follows(tmp_path: Path, links: int, is_found: bool) -> None:
    """If this fails, a program reads a file through `torrentdist://` that it can't read from the
    disk, or misses one that it can."""
    (tmp_path / "l0").write_text("x")
    for number in range(1, links + 1):
        (tmp_path / f"l{number}").symlink_to(f"l{number - 1}")
    target = tmp_path / f"l{links}"
    files = tuple(make_metafile(tmp_path / "l0").files)
    meta = make_metafile(_one_file(tmp_path))
    chain = tuple(Symlink(f"l{number}", f"l{number - 1}") for number in range(1, links + 1))
    tree = BundleTree(structs.replace(meta, files=files, symlinks=chain))

    assert is_found == target.exists() == (tree.find(f"l{links}") is not None)


def _one_file(work: Path) -> Path:
    (work / "top").mkdir()
    (work / "top" / "l0").write_text("x")
    return work / "top"


def test_a_symlink_that_leads_through_the_top_and_back_is_followed(tmp_path: Path) -> None:
    """If this fails, a link such as `../lib/x` or `./y` leads to nothing."""
    top = _one_file(tmp_path)
    (top / "d").mkdir()
    (top / "d" / "up").symlink_to("../l0")
    (top / "d" / "here").symlink_to(".//./up")
    tree = BundleTree(make_metafile(top))

    assert [NodeKind.FILE] * 3 == [found.kind for path in ("d/up", "d/here", "d/../l0") if (found := tree.find(path))]
    assert [None] * 3 == [tree.find(path) for path in ("..", "d/../../l0", "l0/x")]


def test_a_bundle_without_entries_is_an_empty_directory(tmp_path: Path) -> None:
    """If this fails, a listing of an empty bundle is an error."""
    meta = make_metafile(_one_file(tmp_path))
    tree = BundleTree(structs.replace(meta, files=(), symlinks=(), empty_dirs=()))

    assert [] == tree.list("")
    assert [True, False] == [tree.find(path) is not None for path in ("", "x")]
