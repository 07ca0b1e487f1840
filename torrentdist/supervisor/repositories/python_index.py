"""The wheels and sdists of a bundle as a package index, in the pages of PEP 503 and PEP 691.

Always: a file counts if its name is that of a wheel or an sdist, in whatever folder it lies. If two
folders hold the same name, the first path in the order of the alphabet counts. What comes from a
bundle is escaped before it is part of a page or a link.
Pure: no I/O.
"""

import html
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from torrentdist.bundle.bundle_tree import BundleTree
from torrentdist.bundle.metafile import FileEntry, Metafile

API_VERSION = "1.1"
JSON_TYPE = "application/vnd.pypi.simple.v1+json"
HTML_TYPE = "application/vnd.pypi.simple.v1+html"
PLAIN_TYPE = "text/html"
METADATA = ".metadata"
"""The ending that names the metadata of a wheel (PEP 658)."""
MOST_TAGS = 1000
"""Most tags of a wheel that counts. A name can stand for 40,000, which take a tenth of a second."""
_TYPES = {
    "application/vnd.pypi.simple.latest+json": JSON_TYPE,
    "application/vnd.pypi.simple.latest+html": HTML_TYPE,
    "*/*": PLAIN_TYPE,
    "text/*": PLAIN_TYPE,
    "application/*": JSON_TYPE,
    **{kind: kind for kind in (JSON_TYPE, HTML_TYPE, PLAIN_TYPE)},
}


class PythonDistribution(msgspec.Struct, frozen=True):
    """A wheel or an sdist of a bundle."""

    filename: str
    version: str
    file: FileEntry

    @property
    def is_wheel(self) -> bool:
        return self.filename.endswith(".whl")


class DistributionFacts(msgspec.Struct, frozen=True):
    """What a page tells about a file besides its name."""

    sha256: str
    metadata_sha256: str = ""
    """Empty: the file has no metadata that can be served on its own."""
    requires_python: str = ""


PythonIndex = Mapping[str, Mapping[str, PythonDistribution]]
"""The files of each project by name; projects under their normalized names."""


def python_index(meta: Metafile) -> PythonIndex:
    """Returns the index of a bundle. Takes milliseconds for each thousand files."""
    found: dict[str, dict[str, PythonDistribution]] = {}
    for path, file in sorted(_files(meta)):
        filename = path.rpartition("/")[2]
        if (named := _project_and_version(filename)) is not None:
            project, version = named
            found.setdefault(project, {}).setdefault(filename, PythonDistribution(filename, version, file))
    return dict(sorted(found.items()))


def _files(meta: Metafile) -> Iterator[tuple[str, FileEntry]]:
    yield from ((file.path, file) for file in meta.files)
    if meta.symlinks:
        tree = BundleTree(meta)
        nodes = ((link.path, tree.find(link.path)) for link in meta.symlinks)
        yield from ((path, node.file) for path, node in nodes if node is not None and node.file is not None)


def _project_and_version(filename: str) -> tuple[str, str] | None:
    from packaging.utils import is_normalized_name, parse_sdist_filename, parse_wheel_filename

    try:
        if filename.endswith(".whl"):
            if _tags_of(filename) > MOST_TAGS:
                return None
            project, version, _, _ = parse_wheel_filename(filename)
        elif filename.endswith((".tar.gz", ".zip")):
            project, version = parse_sdist_filename(filename)
        else:
            return None
    except ValueError:
        return None
    return (project, str(version)) if is_normalized_name(project) else None


def _tags_of(filename: str) -> int:
    """Returns how many tags the name of a wheel stands for: each of its last three parts may name
    several."""
    parts = filename.removesuffix(".whl").split("-")[-3:]
    return math.prod(part.count(".") + 1 for part in parts)


def normalized(project: str) -> str:
    from packaging.utils import canonicalize_name  # which a host without package indexes needs not

    return canonicalize_name(project)


# pages


def chosen_type(accept: str) -> str:
    """Returns the media type of a page for a client that accepts these. A client that accepts none
    of them gets HTML, as PEP 691 allows."""
    best, most = PLAIN_TYPE, 0.0
    for part in accept.split(","):
        kind, *parameters = (text.strip().lower() for text in part.split(";"))
        quality = next((_quality(text[2:]) for text in parameters if text.startswith("q=")), 1.0)
        if kind in _TYPES and quality > most:
            best, most = _TYPES[kind], quality
    return best


def _quality(text: str) -> float:
    try:
        return min(1.0, max(0.0, float(text)))
    except ValueError:
        return 0.0


def projects_page(projects: Iterable[str], kind: str) -> bytes:
    if kind == JSON_TYPE:
        return _json({"projects": [{"name": name} for name in projects]})
    return _html("Projects", [(f"{name}/", name, {}) for name in projects])


def project_page(project: str, files: Sequence[tuple[PythonDistribution, DistributionFacts]], kind: str) -> bytes:
    """Returns the page of one project, with links relative to it."""
    if kind == JSON_TYPE:
        versions = list(dict.fromkeys(one.version for one, _ in files))
        entries = [_json_entry(one, facts) for one, facts in files]
        return _json({"name": project, "versions": versions, "files": entries})
    return _html(f"Links for {project}", [_link(one, facts) for one, facts in files])


def _json_entry(one: PythonDistribution, facts: DistributionFacts) -> dict[str, Any]:
    metadata: Any = {"sha256": facts.metadata_sha256} if facts.metadata_sha256 else False
    entry: dict[str, Any] = {
        "filename": one.filename,
        "url": quote(one.filename),
        "hashes": {"sha256": facts.sha256},
        "size": one.file.size,
        "core-metadata": metadata,  # Not by its older name too: pip 23.0 fails on that (PEP 714).
    }
    return entry | ({"requires-python": facts.requires_python} if facts.requires_python else {})


def _link(one: PythonDistribution, facts: DistributionFacts) -> tuple[str, str, dict[str, str]]:
    attributes = {}
    if facts.requires_python:
        attributes["data-requires-python"] = facts.requires_python
    if facts.metadata_sha256:
        named = ("data-core-metadata", "data-dist-info-metadata")
        attributes |= dict.fromkeys(named, f"sha256={facts.metadata_sha256}")
    return f"{quote(one.filename)}#sha256={facts.sha256}", one.filename, attributes


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps({"meta": {"api-version": API_VERSION}, **value}, ensure_ascii=True).encode()


def _html(title: str, links: Iterable[tuple[str, str, Mapping[str, str]]]) -> bytes:
    lines = [
        "<!DOCTYPE html>",
        '<html><head><meta charset="utf-8">',
        f'<meta name="pypi:repository-version" content="{API_VERSION}">',
        f"<title>{html.escape(title)}</title></head><body>",
        *(_anchor(url, text, attributes) for url, text, attributes in links),
        "</body></html>",
        "",
    ]
    return "\n".join(lines).encode("utf-8")


def _anchor(url: str, text: str, attributes: Mapping[str, str]) -> str:
    named = "".join(f' {name}="{html.escape(value)}"' for name, value in {"href": url, **attributes}.items())
    return f"<a{named}>{html.escape(text)}</a><br>"
