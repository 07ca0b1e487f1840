"""Reads the kernel's table of mounts, /proc/self/mountinfo.

Pure: text in, values out. A line that is not understood is left out.
"""

import re
from collections.abc import Collection, Iterable, Sequence

import msgspec

from torrentdist.model.ids import Digest

_CONTENT = re.compile(r"/objects/([0-9a-f]{64})/content(?:/(.*))?", re.DOTALL)
_ESCAPE = re.compile(r"\\([0-7]{3})")
DELETED = "//deleted"


class Mount(msgspec.Struct, frozen=True):
    target: str
    root: str
    """The directory of its file system that is mounted."""
    read_only: bool
    device: str = ""
    """The number of its file system."""
    shared: bool = False
    """Whether what is mounted below it appears in other mount namespaces, too."""

    @property
    def is_gone(self) -> bool:
        """Whether the mounted directory was deleted, so that the mount is empty for ever."""
        return self.root.endswith(DELETED)

    @property
    def digest(self) -> Digest | None:
        """The bundle whose content is mounted, as the name of the directory says; None: it says
        something else. A pod can make a directory of such a name."""
        found = _CONTENT.search(self.root.removesuffix(DELETED))
        return Digest(found[1]) if found else None


def parse_mounts(table: str) -> list[Mount]:
    """Returns the mounts in the order of the table: of two at one place, the later one hides the
    other."""
    # In names, the kernel escapes a newline, and nothing else that splitlines() splits at.
    return [mount for line in table.split("\n") if (mount := _mount(line.split(" "))) is not None]


def _mount(fields: Sequence[str]) -> Mount | None:
    if len(fields) < 7 or "-" not in fields[6:]:
        return None
    optional = fields[6 : fields.index("-", 6)]
    return Mount(
        target=_unescaped(fields[4]),
        device=fields[2],
        root=_unescaped(fields[3]),
        read_only="ro" in fields[5].split(","),
        shared=any(field.startswith("shared:") for field in optional),
    )


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), text)


def mounted_at(mounts: Iterable[Mount], target: str) -> list[Mount]:
    return [mount for mount in mounts if mount.target == target]


def volume_mounts(mounts: Collection[Mount], store: str) -> dict[str, Mount]:
    """Returns the mounts of bundles, by target. The last one counts where several are stacked.

    `store`: the supervisor's directory. What is mounted from elsewhere is no bundle, whatever it is
    called.
    """
    around = surrounding(mounts, store)
    if around is None:
        return {}
    within = store[len(around.target.rstrip("/")) :]
    root = f"{around.root.rstrip('/')}{within}/objects/"
    ours = (mount for mount in mounts if mount.device == around.device and mount.root.startswith(root))
    return {mount.target: mount for mount in ours if mount.digest is not None}


def surrounding(mounts: Iterable[Mount], path: str) -> Mount | None:
    """Returns the mount in which a path lies: the last one where several are stacked."""
    around = [mount for mount in mounts if path == mount.target or path.startswith(mount.target.rstrip("/") + "/")]
    return max(reversed(around), key=lambda mount: len(mount.target), default=None)
