"""The pages of Spark drivers that run as other users than their supervisor."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import pytest
from cluster_fixtures import until
from launcher_site import as_root

from torrentdist.host.process.listening_sockets import free_ports

pytestmark = as_root
DRIVERS, OTHERS, SUPERVISOR = 20000, 20001, 30000
PAGES = """
import encodings.idna, http.server, json, os, sys
port, run, user = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
os.setgroups([]); os.setresgid(user, user, user); os.setresuid(user, user, user)
class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        known = {"sparkProperties": [["spark.app.name", "daily"], ["spark.torrentdist.run", run]]}
        body = json.dumps(known if self.path.endswith("/environment") else [{"id": "app-" + run}]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
http.server.HTTPServer(("127.0.0.1", port), Pages).serve_forever()
"""
LOOK = """
import asyncio, concurrent.futures.thread, encodings.idna, json, os, sys
from torrentdist.http.connection_pool import Http
from torrentdist.supervisor.process.spark_applications import Applications, SparkDriver, listening
user, drivers = int(sys.argv[1]), [SparkDriver((run, 0), run, pid, port) for run, pid, port in json.loads(sys.argv[2])]
os.setgroups([]); os.setresgid(user, user, user); os.setresuid(user, user, user)
async def look():
    found = Applications("host", lambda: None)
    async with Http(connect_secs=5.0, silence_secs=5.0) as http:
        await found.look(drivers, http)
    return {driver.run: [found.of(driver.key).id, found.of(driver.key).ui] for driver in drivers}
print(json.dumps([[listening(driver.pid) for driver in drivers], asyncio.run(look())]))
"""


def is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5.0):
        return True
    return False


def neighbouring_ports(count: int) -> list[int]:
    """Returns free ports beside each other, as Spark's drivers take them."""
    while True:
        first = free_ports(1)[0]
        ports = [*range(first, first + count)]
        if first < 60_000 and not any(map(is_open, ports)):
            return ports


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_a_driver_of_another_user_is_known_by_the_run_that_its_pages_name(
    started: list[subprocess.Popen[bytes]],
) -> None:
    """If this fails, `job show` names no application of a Spark job that runs as the jobs' user, or
    that of another job."""
    ports = neighbouring_ports(3)
    for port, run, user in zip(ports, ("one", "two", "one"), (OTHERS, DRIVERS, DRIVERS), strict=True):
        started.append(subprocess.Popen([sys.executable, "-c", PAGES, str(port), run, str(user)]))
        until(partial(is_open, port), "the driver has pages")
    _, two, one = started
    drivers = [("one", one.pid, ports[0]), ("two", two.pid, ports[0]), ("three", two.pid, ports[0])]
    command = [sys.executable, "-c", LOOK, str(SUPERVISOR), json.dumps(drivers)]
    kept, found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=True).stdout)

    assert [None] * 3 == kept
    assert ["app-one", f"http://host:{ports[2]}"] == found["one"]
    assert ["app-two", f"http://host:{ports[1]}"] == found["two"]
    assert ["", ""] == found["three"]
