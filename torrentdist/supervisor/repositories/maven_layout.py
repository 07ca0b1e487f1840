"""A bundle as a Maven repository: the files that a resolver asks for, and its list of versions.

Always: the top of the bundle is the top of the repository.
Pure: no I/O.
"""

import re
from html import escape
from typing import Final

from torrentdist.bundle.bundle_tree import BundleTree, NodeKind
from torrentdist.bundle.metafile import FileEntry

CHECKSUMS: Final = ("md5", "sha1", "sha256", "sha512")
METADATA_NAME: Final = "maven-metadata.xml"
_TOKEN: Final = re.compile(r"\d{1,18}|[a-z]+")
_EARLIER: Final = {"alpha": 0, "a": 0, "beta": 1, "b": 1, "milestone": 2, "m": 2, "rc": 3, "cr": 3, "snapshot": 4}
_RELEASE: Final = ("", "final", "ga", "release")


def found_file(tree: BundleTree, path: str) -> FileEntry | None:
    node = tree.find(path)
    return None if node is None else node.file


def split_checksum(path: str) -> tuple[str, str] | None:
    """Returns the path that a checksum is of, and the kind of the checksum."""
    base, _, ending = path.rpartition(".")
    return (base, ending) if base and ending in CHECKSUMS else None


def version_list(tree: BundleTree, path: str) -> bytes | None:
    """Returns the maven-metadata.xml of an artifact; None if `path` names none, or there is no such
    artifact."""
    folder, _, name = path.rpartition("/")
    group, _, artifact = folder.rpartition("/")
    if name != METADATA_NAME or not group:
        return None
    versions = sorted(_versions(tree, folder, artifact), key=version_order)
    if not versions:
        return None
    released = [version for version in versions if not version.endswith("-SNAPSHOT")]
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        "<metadata>",
        f"  <groupId>{escape(group.replace('/', '.'))}</groupId>",
        f"  <artifactId>{escape(artifact)}</artifactId>",
        "  <versioning>",
        f"    <latest>{escape(versions[-1])}</latest>",
        *(f"    <release>{escape(version)}</release>" for version in released[-1:]),
        "    <versions>",
        *(f"      <version>{escape(version)}</version>" for version in versions),
        "    </versions>",
        "  </versioning>",
        "</metadata>",
        "",
    ]
    return "\n".join(lines).encode("utf-8")


def _versions(tree: BundleTree, folder: str, artifact: str) -> list[str]:
    found = []
    for node in tree.entries(folder):
        version = node.path.rpartition("/")[2]
        if node.kind is NodeKind.FILE:
            continue
        names = (each.path.rpartition("/")[2] for each in tree.entries(node.path))
        if any(name.startswith(f"{artifact}-") and name.endswith((".pom", ".jar")) for name in names):
            found.append(version)
    return found


def version_order(version: str) -> list[tuple[int, int, str]]:
    """Returns a key that sorts versions as Maven does: 1.0-rc1 before 1.0 before 1.0.1."""
    order: list[tuple[int, int, str]] = []
    for token in _TOKEN.findall(version.lower()):
        if token.isdigit():
            order.append((3, int(token), ""))
        elif token in _EARLIER:
            order.append((0, _EARLIER[token], token))
        elif token not in _RELEASE:
            order.append((2, 0, token))
    return [*order, (1, 0, "")]
