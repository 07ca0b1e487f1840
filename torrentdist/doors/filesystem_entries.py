"""Describes bundles, files and directories as fsspec does.

Always: a bundle that does not exist is a missing file, as libraries know no other. Never: I/O.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torrentdist.bundle.bundle_tree import TreeNode
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.bundle_messages import BundleView


@contextmanager
def missing_as_file(bundle: str) -> Iterator[None]:
    """Turns the error of a bundle that does not exist into FileNotFoundError."""
    try:
        yield
    except TorrentdistError as error:
        if error.code in ("bundle_not_found", "invalid_id"):
            raise FileNotFoundError(errno.ENOENT, error.message, bundle) from error
        raise


def bundle_entry(view: BundleView) -> dict[str, Any]:
    return {"name": view.id, "size": 0, "type": "directory", "digest": view.digest, "created": view.created_at}


def entry_of(bundle: str, node: TreeNode) -> dict[str, Any]:
    entry = {
        "name": f"{bundle}/{node.path}" if node.path else bundle,
        "size": node.file.size if node.file else 0,
        "type": node.kind.value,
        "islink": node.target is not None,
    }
    if node.file is not None:
        entry |= {"executable": node.file.executable, "root": node.file.root.hex()}
    return entry if node.target is None else entry | {"destination": node.target}
