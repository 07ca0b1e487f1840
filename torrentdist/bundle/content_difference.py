"""Compares the content of two bundles: in a sentence, or file by file.

Always: compares names, modes, symlinks, empty directories and content, using only the metafiles.
Never: read a file.
"""

import msgspec

from torrentdist.bundle.metafile import FileEntry, Metafile

_NAMED = 3


def describe_difference(old: Metafile, new: Metafile) -> str:
    """Describes how `new` differs from `old`.

    For example: `a.txt has other content, run.sh is executable now, and 4 more differences`.
    """
    found = _differences(old, new)
    more = len(found) - _NAMED
    rest = [f"and {more} more {'difference' if more == 1 else 'differences'}"] if more > 0 else []
    return ", ".join(found[:_NAMED] + rest)


def _differences(old: Metafile, new: Metafile) -> list[str]:
    if old.single_file != new.single_file:
        kinds = {True: "a single file", False: "a directory"}
        return [f"it is {kinds[new.single_file]} now, and was {kinds[old.single_file]}"]
    if old.single_file:
        renamed = [f"the file is called {new.name} now, and was {old.name}"] if old.name != new.name else []
        return renamed + _changes(old.files[0], new.files[0], "it" if renamed else new.name)
    links = [{link.path: link.target for link in meta.symlinks} for meta in (old, new)]
    empty = [dict.fromkeys(meta.empty_dirs, "") for meta in (old, new)]
    return [
        *_file_differences(old, new),
        *_entry_differences("symlink", *links),
        *_entry_differences("empty directory", *empty),
    ]


def _file_differences(old: Metafile, new: Metafile) -> list[str]:
    before, after = ({file.path: file for file in meta.files} for meta in (old, new))
    return [
        *(what for path in after if path in before for what in _changes(before[path], after[path], path)),
        *(f"{path} is new" for path in after if path not in before),
        *(f"{path} is gone" for path in before if path not in after),
    ]


def _changes(old: FileEntry, new: FileEntry, name: str) -> list[str]:
    found = []
    if (old.root, old.size) != (new.root, new.size):
        found.append(f"{name} has other content")
    if old.executable != new.executable:
        found.append(f"{name} is {'executable now' if new.executable else 'no longer executable'}")
    return found


def _entry_differences(kind: str, old: dict[str, str], new: dict[str, str]) -> list[str]:
    return [
        *(f"the {kind} {path} leads elsewhere" for path in new if path in old and old[path] != new[path]),
        *(f"the {kind} {path} is new" for path in new if path not in old),
        *(f"the {kind} {path} is gone" for path in old if path not in new),
    ]


class FileChanges(msgspec.Struct, frozen=True):
    """How the files of a bundle differ from those of an older one."""

    added: list[str]
    removed: list[str]
    changed: list[str]
    """Files with other content or another mode under the same path."""
    new_bytes: int
    """Bytes of the files whose content the older bundle has under no path."""


def file_changes(old: Metafile, new: Metafile) -> FileChanges:
    """Compares two bundles file by file. Symlinks count as files; moved content is not new."""
    before, after = _entries(old), _entries(new)
    roots = {file.root for file in old.files}
    return FileChanges(
        added=sorted(after.keys() - before.keys()),
        removed=sorted(before.keys() - after.keys()),
        changed=sorted(path for path in after.keys() & before.keys() if after[path] != before[path]),
        new_bytes=sum(file.size for file in new.files if file.root not in roots),
    )


def _entries(meta: Metafile) -> dict[str, object]:
    entries: dict[str, object] = {file.path: (file.root, file.size, file.executable) for file in meta.files}
    return entries | {link.path: link.target for link in meta.symlinks}
