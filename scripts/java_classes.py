"""An archive of the classes that an embedded ZooKeeper loads, which Java maps instead of parsing
them again: a server starts in half the time.

Always: Java itself checks the archive against the jars, and ignores one that does not fit. Never:
needed; a server also starts without it. `make setup` makes it, since a packaged installation may
not be writable.
"""

import os
import sys
import tempfile
from pathlib import Path

from torrentdist.dev.embedded_zookeeper import CLASSES, ZooKeeperServer, free_ports, wait_until_serving


def make_archive(timeout: float = 60.0) -> None:
    """Starts a server once, and lets it leave the archive when it ends."""
    with tempfile.TemporaryDirectory(prefix="torrentdist-zookeeper-") as directory:
        made = Path(directory) / CLASSES.name
        server = ZooKeeperServer(Path(directory), free_ports(1)[0])
        server.spawn(f"-XX:ArchiveClassesAtExit={made}")
        try:
            wait_until_serving([server], timeout)
        finally:
            server.stop(timeout)
        CLASSES.parent.mkdir(parents=True, exist_ok=True)
        beside = CLASSES.with_suffix(f".{os.getpid()}")
        beside.write_bytes(made.read_bytes())
        beside.replace(CLASSES)


if __name__ == "__main__":
    if not CLASSES.exists():
        make_archive()
    sys.exit(0)
