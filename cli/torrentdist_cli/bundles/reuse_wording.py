"""Says in words how much of a bundle is new, and where the rest is."""

from __future__ import annotations

from collections.abc import Sequence

from torrentdist.model.ids import BundleId
from torrentdist_cli.frame.units import size

_NAMED = 3


def new_of(new_bytes: int, total: int) -> str:
    """Returns words such as `new 24.8 MiB of 404.0 MiB (6.1 %)`."""
    share = f" ({100 * new_bytes / total:.1f} %)" if total else ""
    return f"new {size(new_bytes)} of {size(total)}{share}"


def reuse_line(new_bytes: int, total: int, reused_from: Sequence[BundleId]) -> str:
    """Returns words such as `new 24.8 MiB of 404.0 MiB (6.1 %); the rest is in env-42`."""
    if not reused_from:
        return new_of(new_bytes, total)
    named = ", ".join(reused_from[:_NAMED])
    more = len(reused_from) - _NAMED
    return f"{new_of(new_bytes, total)}; the rest is in {named}{f' and {more} more' if more > 0 else ''}"


def compressed_warning(path: str) -> str:
    """Returns the warning about a compressed file that makes up a bundle."""
    return (
        f"{path} is compressed, so no later version can reuse any of it, and every byte moves again. "
        "Unpack it and upload the directory"
    )
