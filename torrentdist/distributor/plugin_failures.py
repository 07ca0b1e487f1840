"""Makes every failure of a plug-in an error of the table."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torrentdist.distributor.protocol import CodeDistributor
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wording import os_sentence


@contextmanager
def plugin_failures(plugin: CodeDistributor, bundle_id: str, place: Path) -> Iterator[None]:
    """Raises an error of the block as one of the table.

    `place`: what an error of the operating system is about if it names no file itself.
    """
    try:
        yield
    except TorrentdistError:
        raise
    except OSError as exc:
        raise TorrentdistError("disk_error", path=str(exc.filename or place), detail=os_sentence(exc)) from exc
    except Exception as exc:
        raise TorrentdistError("bundle_unavailable", id=bundle_id, detail=f"{type(plugin).__name__}: {exc}") from exc
