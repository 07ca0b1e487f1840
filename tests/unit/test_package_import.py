"""`import torrentdist` costs a program almost nothing, and leaves the names of the future Python
API free."""

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


def test_the_names_of_the_python_api_are_free() -> None:
    """If this fails, a module shadows a call of the API: `torrentdist.upload` would be a module
    then."""
    assert {"upload", "download", "distribute", "submit", "Cluster"} <= torrentdist.RESERVED_NAMES
    assert [] == [name for name in torrentdist.RESERVED_NAMES if hasattr(torrentdist, name)]
