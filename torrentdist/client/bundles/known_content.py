"""Gives a download what this host has already: from the stores of its daemons, from directories
that the user names, and from the destination that is to be replaced.

Always: every byte that counts was hashed after it was taken. When the work is cancelled, no thread
writes any more.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.reuse.directory_sources import (
    Held,
    fill_from_directories,
    held_by_directory,
    held_by_store,
    large_files_below,
)
from torrentdist.bundle.reuse.file_filling import Filling
from torrentdist.bundle.reuse.part_filling import Own, large_own_files
from torrentdist.bundle.reuse.recipe import parse_recipe
from torrentdist.client.bundles.transfer_progress import TransferProgress, TransferStage
from torrentdist.model.configuration.config import Config

OnProgress = Callable[[TransferProgress], None]


async def fill_download(
    meta: Metafile,
    recipe: bytes | None,
    content: Path,
    config: Config,
    directories: Sequence[Path],
    progress: OnProgress,
) -> Filling:
    """Takes everything that is known into `content`, where the bundle arrives."""
    loop, stop = asyncio.get_running_loop(), threading.Event()

    def go_on() -> bool:
        return not stop.is_set()

    def held() -> Iterator[Held]:
        for data_dir in (config.supervisor.data_dir, config.master.data_dir):
            yield from held_by_store(Path(data_dir))
        for directory in directories:
            yield held_by_directory(directory, meta, go_on)

    def own() -> Iterator[Own]:
        for directory in directories:
            yield from large_files_below(directory)
        for data_dir in (config.supervisor.data_dir, config.master.data_dir):
            for source, files in held_by_store(Path(data_dir)):
                yield from large_own_files(source, files)

    def tell(done: int) -> None:
        news = TransferProgress(phase=TransferStage.CHECKING, done=done, size=meta.size)
        loop.call_soon_threadsafe(progress, news)

    def fill() -> Filling:
        return fill_from_directories(meta, content, held(), go_on, tell, parse_recipe(recipe), own())

    work = loop.run_in_executor(None, fill)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait({work})
        raise
