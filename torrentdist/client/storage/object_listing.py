"""Lists the objects below a URL that fsspec can read, as the files of a bundle.

Always: a name that no bundle can hold is refused before anything is read. Two equal listings mean
that no object was written in between, as far as the storage tells. A directory that cannot be
listed ends it. A storage on `requests` is not waited for longer than SILENT_SECS.
Never: read an object's content.
"""

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from torrentdist.bundle import safe_paths
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.storage_answers import bound_requests
from torrentdist.model.wording import cause_text

MOST_OBJECTS = 1_000_000
SILENT_SECS = 60.0
_VERSIONS = ("ETag", "etag", "md5", "LastModified", "Last-Modified", "mtime", "modificationTime", "created")
"""What storages call the mark that changes with the content; the first one that is there counts."""


class StoredObject(msgspec.Struct, frozen=True):
    path: str
    """Below the URL; the name of the object if the URL is one object."""
    location: str
    """As the storage calls it."""
    size: int
    version: str
    """Changes with the content; empty if the storage does not tell."""


class Listing(msgspec.Struct, frozen=True):
    url: str
    storage: Any
    """The file system of fsspec."""
    objects: tuple[StoredObject, ...]
    """In the order of a file tree."""
    single: bool

    @property
    def size(self) -> int:
        return sum(found.size for found in self.objects)


def is_url(text: str) -> bool:
    return "://" in text


def list_objects(url: str) -> Listing:
    """Lists what is there. Blocks."""
    if importlib.util.find_spec("fsspec") is None:
        detail = "a URL is read by fsspec, which is not installed"
        raise TorrentdistError("missing_dependency", detail=detail, package="torrentdist[fsspec]")
    import fsspec
    from fsspec.asyn import AsyncFileSystem

    try:
        # An instance of its own: the settings of another one in this process stay as they are.
        storage, root = fsspec.core.url_to_fs(url, skip_instance_cache=True)
        storage.invalidate_cache()
        if not isinstance(storage, AsyncFileSystem):
            bound_requests(storage, SILENT_SECS)
        found = _found_below(storage, root)
    except TorrentdistError:
        raise
    except ImportError as exc:
        raise TorrentdistError("missing_dependency", detail=cause_text(exc), package="s3fs") from exc
    except FileNotFoundError:
        raise TorrentdistError("path_not_found", path=url) from None
    except PermissionError as exc:
        raise TorrentdistError("forbidden", detail=f"{url} cannot be read: {cause_text(exc)}") from exc
    except ValueError as exc:  # fsspec knows no such storage
        raise TorrentdistError("usage", detail=f"{url}: {cause_text(exc)}") from exc
    except Exception as exc:  # a storage has errors of its own library
        raise TorrentdistError("storage_failed", url=url, detail=cause_text(exc)) from exc
    return listing_of(url, storage, root, found)


def _found_below(storage: Any, root: str) -> dict[str, Mapping[str, Any]]:
    """Returns what find() does, with sizes. The find() that most storages share takes a directory
    that it cannot list for an empty one."""
    from fsspec.asyn import AsyncFileSystem
    from fsspec.spec import AbstractFileSystem

    kind = type(storage)
    if kind.find is AbstractFileSystem.find and getattr(kind, "_find", None) in (None, AsyncFileSystem._find):
        found = dict(_walked(storage, root)) or {root: storage.info(root)}
    else:
        found = dict(storage.find(root, detail=True))
    return {location: _with_size(storage, location, info) for location, info in found.items()}


def _walked(storage: Any, root: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    waiting, seen = [root], 0
    while waiting:
        directory = waiting.pop()
        try:
            entries = storage.ls(directory, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            if directory == root:  # it may be an object
                return
            raise TorrentdistError("path_not_found", path=directory) from None
        seen += 1 + len(entries)
        if seen > 2 * MOST_OBJECTS:  # such as a web server with a link to a directory above
            raise TorrentdistError("too_large", what=root, size=f"{seen} entries", limit=f"{MOST_OBJECTS} objects")
        for info in entries:
            name = info["name"]
            if name.rstrip("/") == directory.rstrip("/"):
                continue  # the directory itself, or an object that was listed
            rest = name[len(directory) :].strip("/")
            if "http" in storage.protocol and (rest.startswith("?") or rest in (".", "..")):
                continue  # a link of a web server's list of files that sorts it, or leads to it or above it
            if info["type"] == "directory":
                waiting.append(name.rstrip("/"))
            else:
                yield name, info


def _with_size(storage: Any, location: str, info: Mapping[str, Any]) -> Mapping[str, Any]:
    if info.get("type") == "directory" or info.get("size") is not None:
        return info
    try:
        return {**info, **storage.info(location)}
    except FileNotFoundError:
        raise TorrentdistError("path_not_found", path=location) from None


def listing_of(url: str, storage: Any, root: str, found: Mapping[str, Mapping[str, Any]]) -> Listing:
    """Makes the listing from what `find` returned."""
    single = list(found) == [root.rstrip("/")]
    objects = list(_objects(root.rstrip("/"), found, single))
    if not objects:
        raise TorrentdistError("path_not_found", path=url)
    if len(objects) > MOST_OBJECTS:
        raise TorrentdistError("too_large", what=url, size=f"{len(objects)} objects", limit=f"{MOST_OBJECTS} objects")
    _check_names(objects)
    return Listing(url, storage, tuple(sorted(objects, key=lambda each: each.path.encode().split(b"/"))), single)


def _objects(root: str, found: Mapping[str, Mapping[str, Any]], single: bool) -> Iterator[StoredObject]:
    for location, info in found.items():
        path = root.rpartition("/")[2] if single else location[len(root) :].lstrip("/")
        if info.get("type") == "directory" or not path or location.endswith("/"):
            continue  # S3's marks of empty directories
        if info.get("size") is None:
            raise TorrentdistError("storage_failed", url=location, detail="the storage does not tell its size")
        version = next((str(info[name]) for name in _VERSIONS if info.get(name)), "")
        yield StoredObject(path, location, int(info["size"]), version)


def _check_names(objects: Sequence[StoredObject]) -> None:
    for each in objects:
        if (problem := safe_paths.path_problem(each.path.encode())) is not None:
            raise TorrentdistError("bad_name", path=each.path, detail=problem)
    if (problem := safe_paths.find_layout_problem([each.path for each in objects], [], [])) is not None:
        raise TorrentdistError("bad_name", path=objects[0].location, detail=problem)
