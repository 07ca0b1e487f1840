"""`import torrentdist` costs a program almost nothing, and gives it the names of the Python API."""

from __future__ import annotations

import subprocess
import sys

import torrentdist

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


def test_reserved_names_are_free() -> None:
    """If this fails, a module shadows a later call of the API."""
    assert [] == [name for name in torrentdist.RESERVED_NAMES if hasattr(torrentdist, name)]


def test_listing_bundles_does_not_load_libtorrent() -> None:
    """If this fails, every small call and command waits for a library that only transfers need."""
    program = "import sys, torrentdist; torrentdist.AsyncClient, torrentdist.Client; print('libtorrent' in sys.modules)"

    assert "False" == _run(program).strip()
