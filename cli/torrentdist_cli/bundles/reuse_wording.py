"""Says in words how much of a bundle is new, where the rest is, and what becomes of files."""

from collections.abc import Sequence

from torrentdist.model.ids import BundleId
from torrentdist.model.wording import printable
from torrentdist_cli.frame.rendering import size

_NAMED = 3
_WARNED = 5
_INSTEAD = "Unpack it and upload the directory, or make it with zip or gzip --rsyncable"


def reuse_line(new_bytes: int | None, total: int, reused_from: Sequence[BundleId]) -> str:
    """Returns words such as `new 24.8 MiB of 404.0 MiB (6.1 %); the rest is in env-42`."""
    if new_bytes is None:
        return f"how much of the {size(total)} is new is not known: no master said so in time"
    named = ", ".join(reused_from[:_NAMED])
    more = len(reused_from) - _NAMED
    where = f"{named} and {more} more" if more > 0 else named
    if where and not new_bytes:
        return f"nothing is new: all {size(total)} are in {where}"
    share = f" ({100 * new_bytes / total:.1f} %)" if total else ""
    new = f"new {size(new_bytes)} of {size(total)}{share}"
    return f"{new}; the rest is in {where}" if where else new


def compressed_warnings(paths: Sequence[str]) -> list[str]:
    """Returns the warnings about compressed archives, and what to do instead."""
    more = len(paths) - _WARNED
    return [
        *(
            f"{printable(path)} is compressed, so every later version of it moves as a whole. {_INSTEAD}"
            for path in paths[:_WARNED]
        ),
        *(
            [f"{more} more compressed {'archive moves' if more == 1 else 'archives move'} as a whole"]
            if more > 0
            else []
        ),
    ]


def owner_only_notice(count: int) -> str:
    """Returns what becomes of files that only their owner can read."""
    files = "1 file that only its owner can read" if count == 1 else f"{count:,} files that only their owner can read"
    return f"{files}: a download keeps such modes, but whoever may read the bundle can read all its files"
