"""`import torrentdist` costs a program almost nothing, and gives it the names of the Python API. A
daemon loads no library that it does not use."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import torrentdist

PAGE = Path(__file__).parent.parent.parent / "docs/python.md"

_MODULES = "import sys; before = set(sys.modules); import torrentdist; print(*sorted(set(sys.modules) - before))"
_SECS = "import time; began = time.process_time(); import torrentdist; print(time.process_time() - began)"
MOST_SECS = 0.03


def _run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout


def test_importing_the_package_loads_nothing_else() -> None:
    """If this fails, every program that imports torrentdist waits for libraries that it may never
    use."""
    assert "torrentdist" == _run(_MODULES).strip()


def test_importing_the_package_takes_at_most_30_ms() -> None:
    """If this fails, the import does work that belongs into the first call. The best of three runs
    counts."""
    secs = min(float(_run(_SECS)) for _ in range(3))

    assert secs <= MOST_SECS


def test_every_name_of_the_python_api_is_there() -> None:
    """If this fails, `torrentdist.upload` is missing, or a module took its name."""
    found = {name: getattr(torrentdist, name) for name in torrentdist.__all__}

    assert [] == [name for name, value in found.items() if not callable(value)]
    assert set(torrentdist.__all__) <= set(dir(torrentdist))


def test_every_call_of_the_page_is_one_of_the_package() -> None:
    """If this fails, a reader of docs/python.md calls what does not exist."""
    table = re.findall(r"^\| `(\w+)\(.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    calls = [name for name in torrentdist.__all__ if name.islower()]

    assert sorted(calls) == sorted(table)


def test_a_wrong_priority_is_an_error_that_names_the_right_ones() -> None:
    """If this fails, a program that catches TorrentdistError ends with a ValueError."""
    with pytest.raises(torrentdist.TorrentdistError) as caught:
        torrentdist.distribute("etl-42", priority="urgent")

    assert "invalid_request" == caught.value.code
    assert "priority is low, normal or high, not 'urgent'" in str(caught.value)


def test_reserved_names_are_free() -> None:
    """If this fails, a module shadows a later call of the API."""
    assert [] == [name for name in torrentdist.RESERVED_NAMES if hasattr(torrentdist, name)]


def test_listing_bundles_does_not_load_libtorrent() -> None:
    """If this fails, every small call and command waits for a library that only transfers need."""
    program = "import sys, torrentdist; torrentdist.AsyncClient, torrentdist.Client; print('libtorrent' in sys.modules)"

    assert "False" == _run(program).strip()


def test_a_daemon_loads_no_library_before_it_uses_it() -> None:
    """If this fails, every host pays for it: `cryptography` alone takes 8 MB, and only TLS uses
    it."""
    daemons = "import sys, torrentdist.master.daemon, torrentdist.supervisor.daemon; "
    needless = "('cryptography', 'httpx', 'importlib.metadata', 'importlib.resources', 'packaging', 'xml')"

    assert "[]" == _run(f"{daemons}print([name for name in {needless} if name in sys.modules])").strip()


def test_a_daemon_streams_without_anyios_backend() -> None:
    """If this fails, each host pays a megabyte for it."""
    program = """
import asyncio, sys
from torrentdist.host.http.uvicorn_adapter import WebServer
from torrentdist.host.http.web import StreamedAnswer
from torrentdist.host.process.listening_sockets import bind_socket

async def body():
    yield b"all of it"

async def main():
    web = WebServer(StreamedAnswer(body()), bind_socket("127.0.0.1", 0, what="the test"))
    await web.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
    writer.write(b"GET / HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
    print(b"all of it" in await reader.read(), "anyio._backends._asyncio" in sys.modules)
    writer.close()
    await web.stop()

asyncio.run(main())
"""

    assert "True False" == _run(program).strip()
