"""A bundle as a Maven repository: lists of versions and their order."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest
from package_files import make_artifact

from torrentdist.bundle.bundle_tree import BundleTree
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.host.event_loop.slow_callbacks import SlowCallback
from torrentdist.supervisor.repositories.maven_layout import split_checksum, version_list, version_order


def tree_of(folder: Path) -> BundleTree:
    return BundleTree(make_metafile(folder))


def test_versions_are_listed_in_mavens_order(tmp_path: Path) -> None:
    """If this fails, `latest` is an old version, or a version is not found by a range."""
    for version in ("1.10", "1.9", "2.0-rc1", "2.0-SNAPSHOT"):
        make_artifact(tmp_path, "com.example", "lib", version)
    (tmp_path / "com/example/lib/notes").mkdir()
    (tmp_path / "com/example/lib/notes/readme.txt").write_text("no version")

    made = version_list(tree_of(tmp_path), "com/example/lib/maven-metadata.xml")

    assert made is not None
    found = ET.fromstring(made)
    assert ["com.example", "lib"] == [found.findtext("groupId"), found.findtext("artifactId")]
    assert ["1.9", "1.10", "2.0-rc1", "2.0-SNAPSHOT"] == [each.text for each in found.iter("version")]
    assert ["2.0-SNAPSHOT", "2.0-rc1"] == [found.findtext(f"versioning/{name}") for name in ("latest", "release")]


@pytest.fixture
def long_tree(tmp_path: Path) -> BundleTree:
    make_artifact(tmp_path, "org", "lib", "1.0")
    meta = make_metafile(tmp_path)
    more = (msgspec.structs.replace(meta.files[0], path=f"org/lib/1.0/x{number}") for number in range(100_000))
    return BundleTree(msgspec.structs.replace(meta, files=(*meta.files, *more)))


@pytest.mark.anyio
async def test_a_version_of_very_many_files_is_found(
    long_tree: BundleTree, quick_callbacks: list[SlowCallback]
) -> None:
    """If this fails, each request for a list of versions goes through all files of the artifact."""
    assert version_list(long_tree, "org/lib/maven-metadata.xml") is not None


def test_what_is_no_artifact_has_no_versions(tmp_path: Path) -> None:
    """If this fails, a resolver finds artifacts that do not exist."""
    make_artifact(tmp_path, "com.example", "lib", "1.0")
    tree = tree_of(tmp_path)

    for path in (
        "maven-metadata.xml",
        "com/maven-metadata.xml",
        "com/example/maven-metadata.xml",
        "none/x/maven-metadata.xml",
    ):
        assert version_list(tree, path) is None


def test_names_are_escaped(tmp_path: Path) -> None:
    """If this fails, the name of a folder writes into the list."""
    make_artifact(tmp_path, "com.<x>", "a&b", "1.0")

    made = version_list(tree_of(tmp_path), "com/<x>/a&b/maven-metadata.xml")

    assert made is not None
    assert ["com.<x>", "a&b"] == [ET.fromstring(made).findtext(name) for name in ("groupId", "artifactId")]


def test_releases_come_after_their_candidates() -> None:
    """If this fails, a resolver takes a candidate for the newest version."""
    ordered = ["1.0-alpha-1", "1.0-beta1", "1.0-RC1", "1.0-SNAPSHOT", "1.0", "1.0-jre", "1.0.1", "1.2", "1.10"]

    assert ordered == sorted(sorted(ordered), key=version_order)


def test_checksums_are_named_after_their_file() -> None:
    """If this fails, a resolver that verifies downloads refuses all."""
    assert ("a/b.jar", "sha1") == split_checksum("a/b.jar.sha1")
    assert split_checksum("a/b.jar") is None
    assert split_checksum(".md5") is None
