"""Which bundle stands for a repository of the hub, and which of its files are shown."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from torrentdist.bundle.bundle_tree import BundleTree
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.host.event_loop.slow_callbacks import SlowCallback
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.supervisor.hub import hub_listing
from torrentdist.supervisor.hub.hub_names import Repository, RepositoryKind, commit_of, is_commit

LLAMA = Repository(RepositoryKind.MODEL, "acme/llama")
ONE, TWO = Digest("1" * 64), Digest("2" * 64)


@pytest.mark.parametrize(
    ("kind", "name", "revision", "bundle"),
    [
        ("models", "acme/llama", "main", "acme--llama"),
        ("models", "acme/llama", "v2.1", "acme--llama--v2.1"),
        ("models", "gpt2", "main", "gpt2"),
        ("datasets", "acme/words", "main", "datasets--acme--words"),
        ("spaces", "acme/demo", "v1", "spaces--acme--demo--v1"),
    ],
)
def test_a_repository_is_a_bundle_of_a_simple_name(kind: str, name: str, revision: str, bundle: str) -> None:
    """If this fails, a reader does not find what was uploaded under the documented id."""
    assert bundle == Repository(RepositoryKind(kind), name).bundle(revision)


@pytest.mark.parametrize(("name", "revision"), [("acme/llama", "a b"), ("..", "main"), ("a" * 129, "x")])
def test_what_no_bundle_is_called_is_refused(name: str, revision: str) -> None:
    """A name from outside would become a path on disk."""
    with pytest.raises(TorrentdistError) as caught:
        Repository(RepositoryKind.MODEL, name).bundle(revision)

    assert "invalid_id" == caught.value.code


def test_a_commit_is_found_among_the_bundles_of_its_repository() -> None:
    """The library asks for the commit once it knows it, and would get a file of another repository,
    or none."""
    bindings = {
        BundleId("acme--llama"): ONE,
        BundleId("acme--llama--v2"): TWO,
        BundleId("acme--llama2"): TWO,
        BundleId("other"): TWO,
    }

    assert ["acme--llama"] == LLAMA.bundles_at(commit_of(ONE), bindings)
    assert ["acme--llama--v2"] == LLAMA.bundles_at(commit_of(TWO), bindings)
    assert [] == LLAMA.bundles_at("3" * 40, bindings)
    assert [] == Repository(RepositoryKind.DATASET, "acme/llama").bundles_at(commit_of(ONE), bindings)


def test_only_forty_hex_digits_are_a_commit() -> None:
    """A tag such as `1234567` would be looked for as a commit."""
    assert is_commit(commit_of(ONE))
    assert not any(is_commit(text) for text in ("main", "1" * 39, "1" * 41, "A" * 40, "1" * 40 + "\n"))


@pytest.fixture
def tree(tmp_path: Path) -> BundleTree:
    top = tmp_path / "top"
    (top / ".cache" / "huggingface").mkdir(parents=True)
    (top / ".cache" / "huggingface" / "notes").write_text("notes")
    (top / "deep" / "er").mkdir(parents=True)
    (top / "deep" / "er" / "data").write_bytes(b"12345")
    (top / "copy").write_bytes(b"12345")
    (top / "nothing").touch()
    (top / "link").symlink_to("deep/er/data")
    (top / "folder").symlink_to("deep")
    return BundleTree(make_metafile(top))


def test_files_are_listed_once_with_symlinks_as_files(tree: BundleTree) -> None:
    """If this fails, a snapshot lacks a file, or the library's own notes about another directory
    replace its new ones."""
    found = {file.rfilename: (file.size, file.blob_id) for file in hub_listing.files(tree)}

    assert {"copy", "deep/er/data", "link", "nothing"} == found.keys()
    assert found["copy"] == found["deep/er/data"] == found["link"]
    assert found["copy"] != found["nothing"]
    assert 5 == found["link"][0]


def test_a_directory_is_listed_alone_or_with_all_below_it(tree: BundleTree) -> None:
    """If this fails, the library sees other files than a download brings."""
    alone, whole = hub_listing.entries(tree, "deep", recursive=False), hub_listing.entries(tree, "deep", recursive=True)

    assert [("directory", "deep/er")] == [(entry.type, entry.path) for entry in alone or []]
    assert ["deep/er", "deep/er/data"] == [entry.path for entry in whole or []]
    assert hub_listing.entries(tree, "copy", recursive=False) is None
    assert hub_listing.entries(tree, ".cache/huggingface", recursive=False) is None


@pytest.mark.parametrize("path", ["", "deep", "folder"])
def test_a_listing_goes_on_after_any_entry(tree: BundleTree, path: str) -> None:
    """If this fails, a repository of many files is copied in part."""
    for recursive in (False, True):
        whole = list(hub_listing.entries(tree, path, recursive=recursive) or [])

        for number, entry in enumerate(whole, 1):
            after = entry.path.removeprefix(path).lstrip("/")
            assert whole[number:] == list(hub_listing.entries(tree, path, recursive=recursive, after=after) or [])


@pytest.fixture
def long_tree(tmp_path: Path) -> BundleTree:
    (tmp_path / "file").write_text("file")
    meta = make_metafile(tmp_path)
    files = tuple(msgspec.structs.replace(meta.files[0], path=f"folder/{number:06}") for number in range(100_000))
    return BundleTree(msgspec.structs.replace(meta, files=files))


@pytest.mark.anyio
async def test_a_page_costs_no_more_than_its_entries(
    long_tree: BundleTree, quick_callbacks: list[SlowCallback]
) -> None:
    """If this fails, the pages of a long listing cost the square of its files."""
    found = hub_listing.entries(long_tree, "", recursive=True, after="folder/050000")

    assert "folder/050001" == next(iter(found or ())).path


def test_a_path_never_leaves_the_bundle(tree: BundleTree) -> None:
    """If this fails, a name from outside reads a file of the host."""
    assert hub_listing.file_at(tree, "link") is not None
    for path in ("../top/copy", "deep/../../copy", "/etc/passwd", "", "deep", ".cache/huggingface/notes"):
        assert hub_listing.file_at(tree, path) is None
