"""Reports an upload that begins, as events: who began it, and which files its bundle has.

Always: the files of a large bundle are told in several lines, so that no line grows without limit.
Never: change anything about the upload.
"""

import asyncio

from torrentdist.bundle.metafile import Metafile
from torrentdist.host.telemetry.event_log import EventLog
from torrentdist.model.events import BundleFiles, FileFact, UploadOpened
from torrentdist.model.ids import BundleId
from torrentdist.traces.spans import place_in

FILES_A_LINE = 200
"""Files in one line of the log of events."""
MOST_FILES = 20_000
"""Most files of one bundle that the log of events names."""


def tell_opened(events: EventLog, bundle: BundleId, meta: Metafile, traceparent: str) -> None:
    sender = traceparent if place_in(traceparent) is not None else ""
    events.emit(UploadOpened(bundle=bundle, digest=meta.digest, size=meta.size, traceparent=sender))


async def tell_files(events: EventLog, bundle: BundleId, meta: Metafile) -> None:
    """Lets others have the event loop after each line."""
    for start in range(0, min(len(meta.files), MOST_FILES), FILES_A_LINE):
        some = meta.files[start : min(start + FILES_A_LINE, MOST_FILES)]
        if files := [FileFact(root=file.root.hex(), size=file.size) for file in some if file.size]:
            events.emit(BundleFiles(bundle=bundle, digest=meta.digest, files=files))
        await asyncio.sleep(0)
