"""Finds the Spark applications of the drivers on this host: their ids, and the URLs of their web
pages.

Always: the facts about a driver come from a port on which that driver listens. Where the kernel
does not tell us the ports of another user's process, they come from a port of the driver's user
whose pages name this run. A driver without web pages has no id here, and runs all the same. One
driver hides no other.
Never: ask other ports, which could confuse the programs that listen there. A job can serve what it
likes there, so no answer is read for long, and only a short id is taken.
"""

import asyncio
import contextlib
import ipaddress
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from torrentdist.http.connection_pool import Http
from torrentdist.http.http_values import HttpError
from torrentdist.log import get_logger
from torrentdist.model.jobs.report_bounds import application_id
from torrentdist.model.wire.view import decode_json
from torrentdist.supervisor.process.spark_submit import RUN_KEY
from torrentdist.supervisor.worker.worker_types import Key

log = get_logger()

LOOK_SECS = 1.0
IDLE_LOOK_SECS = 3.0
ANSWER_SECS = 2.0
DRIVER_SECS = 5.0
"""Longest time for both answers of one driver, which may come a byte at a time."""
MOST_LIST_BYTES = 64 * 1024
MOST_ENVIRONMENT_BYTES = 4 * 1024 * 1024
"""Largest answers. The environment holds the driver's whole configuration and class path."""
RETRIES = 16
"""Number of ports that Spark tries after the first one."""
_LISTENING = "0A"
_NAME = r"(?:[A-Za-z_$][\w$]*\.)*(?:[A-Z][\w$]*)?(?:Error|Exception)"
_REASON = re.compile(rf'^(?:Exception in thread "[^"]*" |Caused by: |: )?({_NAME}(?::.*)?)$', re.MULTILINE)
_KILLED = re.compile(r"Application has been killed\. Reason: (.+)$", re.MULTILINE)
"""Spark says so when its cluster refuses an application or can't be reached. The errors that follow
tell only where the driver was at that moment."""
_ANY = ("0.0.0.0", "::", "127.0.0.1", "::1")


class SparkDriver(msgspec.Struct, frozen=True):
    key: Key
    run: str
    pid: int
    first_port: int


class Application(msgspec.Struct, frozen=True):
    id: str = ""
    ui: str = ""


class Applications:
    def __init__(self, host: str, on_change: Callable[[], None]) -> None:
        self._host = host
        self._on_change = on_change
        self._known: dict[Key, tuple[str, Application]] = {}
        self._failed: dict[Key, str] = {}
        """The runs of the drivers of which a look failed. Each is logged once."""

    def of(self, key: Key) -> Application:
        """Returns the application of this driver, or an empty one if it is not known."""
        return self._known[key][1] if key in self._known else Application()

    def forget(self, key: Key) -> None:
        """Forgets the application of an earlier run, or of an earlier job of the same id."""
        self._known.pop(key, None)
        self._failed.pop(key, None)

    async def run(self, drivers: Callable[[], Iterable[SparkDriver]]) -> None:
        async with Http(connect_secs=ANSWER_SECS, silence_secs=ANSWER_SECS) as http:  # Without our token.
            while True:
                running = list(drivers())
                await self.look(running, http)
                await asyncio.sleep(LOOK_SECS if running else IDLE_LOOK_SECS)

    async def look(self, drivers: Iterable[SparkDriver], http: Http) -> None:
        """Looks for the pages of the drivers whose pages are not known yet."""
        for driver in drivers:
            if self._known.get(driver.key, ("", None))[0] != driver.run and driver.pid:
                try:
                    await self._look(driver, http)
                except Exception as error:
                    if self._failed.get(driver.key) != driver.run:
                        log.warning("cannot look for the pages of a driver", run=driver.run, exc_info=error)
                    self._failed[driver.key] = driver.run

    async def _look(self, driver: SparkDriver, http: Http) -> None:
        ports = range(driver.first_port, driver.first_port + RETRIES + 1)
        own, run = await asyncio.to_thread(listening, driver.pid), ""
        if own is None:
            own, run = await asyncio.to_thread(listening_user, driver.pid), driver.run
        for host, port in own:
            if port in ports and (id_ := await _ask(host, port, http, run)):
                shown = self._host if host in _ANY else host
                self._known[driver.key] = driver.run, Application(id_, f"http://{shown}:{port}")
                self._on_change()


def reason_in(stderr: str) -> str:
    """Returns why Spark ended the application, or else the last error, of Python or Java, that a
    driver printed; empty if it printed none."""
    found = _KILLED.findall(stderr) or _REASON.findall(stderr)
    return found[-1].strip() if found else ""


async def _ask(host: str, port: int, http: Http, run: str) -> str:
    """Returns the id of the application that serves these pages; empty if they are not Spark's, or
    not those of this run. Any run will do if `run` is empty."""
    where = "127.0.0.1" if host in _ANY else host
    pages = f"http://{where}:{port}/api/v1/applications"
    with contextlib.suppress(
        HttpError, TimeoutError, msgspec.MsgspecError, ValueError, KeyError, IndexError, TypeError
    ):
        async with asyncio.timeout(DRIVER_SECS):
            answer = await http.request("GET", pages, most_bytes=MOST_LIST_BYTES)
            # Before its scheduler is up, an application has pages but no id.
            id_ = application_id(str(decode_json(answer.content, list[dict[str, Any]])[0]["id"] or ""))
            if not id_ or not run:
                return id_
            answer = await http.request("GET", f"{pages}/{id_}/environment", most_bytes=MOST_ENVIRONMENT_BYTES)
            return id_ if [RUN_KEY, run] in decode_json(answer.content, dict[str, Any])["sparkProperties"] else ""
    return ""


def listening(pid: int) -> list[tuple[str, int]] | None:
    """Returns the addresses on which a process listens; none if it is gone. None: the kernel keeps
    them from us, because the process belongs to another user."""
    inodes = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                inodes.add(os.readlink(f"/proc/{pid}/fd/{name}").removeprefix("socket:[").removesuffix("]"))
    except PermissionError:
        return None
    except OSError:
        return []
    return _sockets(pid, lambda user, inode: inode in inodes)


def listening_user(pid: int) -> list[tuple[str, int]]:
    """Returns the addresses on which any process of this process's user listens."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text(errors="replace")  # a process may have any name
        owner = [line.split()[2] for line in status.splitlines() if line.startswith("Uid:")]
        return _sockets(pid, lambda user, inode: user in owner)
    return []


def _sockets(pid: int, is_meant: Callable[[str, str], bool]) -> list[tuple[str, int]]:
    """Returns the addresses of listening sockets. `is_meant` decides by a socket's user and
    inode."""
    found = []
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and is_meant(fields[7], fields[9]):
                    address, _, port = fields[1].partition(":")
                    found.append((_address(address), int(port, 16)))
    return found


def _address(text: str) -> str:
    """Decodes an address that the kernel prints as 32-bit words in this machine's byte order."""
    words = (int(text[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(text), 8))
    ip = ipaddress.ip_address(b"".join(words))
    mapped = getattr(ip, "ipv4_mapped", None)
    return str(mapped or ip)
