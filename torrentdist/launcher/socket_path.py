"""Socket paths of any length: the kernel takes 107 bytes, and a data directory may be deeper.

Always: the address is valid while the context lasts.
Never: import anything but the standard library.
"""

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def short_address(path: str) -> Iterator[str]:
    """Yields a short name of the same file, through a descriptor of its directory."""
    directory, name = os.path.split(os.path.abspath(path))
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)
