"""A program on a host that uses a bundle by its id, as `spark.pyspark.python` does: it asks for a
lease, locks the bundle's file, and reads the content for a while.

Always: the program dies with nothing but the story. What it holds must stay as it is, whatever
becomes of the bundle and of the host's daemon.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simulation.invariants import Tree, wrong_in

from torrentdist.http.api_calls import Broken, Request, error_in, send
from torrentdist.http.connection_pool import Http
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.fleet_messages import HostState, LeaseView
from torrentdist.model.wire.view import decode_json

WAIT_SECS = 5
LOOK_SECS = 0.5


async def use_by_id(gateway: str, bundle: str, tree: Tree, secs: float, most_secs: float) -> None:
    """Raises an AssertionError if what the program holds changes, and a TorrentdistError if it does
    not get it."""
    loop = asyncio.get_running_loop()
    async with Http() as http:
        until = loop.time() + most_secs
        while (view := await _asked(http, gateway, bundle)).state is not HostState.DONE or not _is_current(view):
            if loop.time() > until:
                raise TorrentdistError("timed_out", what=f"the lease of {bundle}", seconds=most_secs)
            await asyncio.sleep(LOOK_SECS)
    with _locked(view.lock):
        content = _target(view)
        until = loop.time() + secs
        while loop.time() < until:
            if wrong := wrong_in(content, tree):
                raise AssertionError(f"a program uses {bundle}, and {wrong}")
            await asyncio.sleep(LOOK_SECS)


async def _asked(http: Http, gateway: str, bundle: str) -> LeaseView:
    request = Request("POST", f"/v1/host/bundles/{bundle}/lease?wait={WAIT_SECS}", timeout=WAIT_SECS * 4.0)
    try:
        answer = await send(http, gateway, request)
    except Broken as broken:
        raise TorrentdistError("supervisor_unreachable", url=gateway, detail=broken.detail) from broken
    if (error := error_in(answer)) is not None:
        raise error
    return decode_json(answer.content, LeaseView)


def _is_current(view: LeaseView) -> bool:
    """Whether the file to lock is there. The daemon removes it when nobody has used the bundle for
    long, and makes it again when it is asked."""
    return os.path.exists(view.lock)


def _target(view: LeaseView) -> Path:
    return Path(view.path).resolve()


@contextmanager
def _locked(path: str) -> Iterator[None]:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    finally:
        os.close(file)
