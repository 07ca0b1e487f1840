"""Describes in a sentence how one bundle's content differs from another's.

Always: compares names, modes, symlinks, empty directories and content, using only the metafiles.
Never: read a file.
"""

from __future__ import annotations

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
