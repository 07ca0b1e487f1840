"""The manual pages that are made from the commands."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    made = tmp_path_factory.mktemp("man")
    subprocess.run([sys.executable, "scripts/man_pages.py", made], cwd=ROOT, check=True, timeout=60)
    return {path.name: path.read_text() for path in made.iterdir()}


def test_each_command_has_a_page(pages: dict[str, str]) -> None:
    """If this fails, `man torrentdist-upload` finds nothing."""
    assert {"torrentdist.1", "torrentdist-upload.1", "torrentdist-bundle-distribute.1"} <= pages.keys()
    assert "\\-\\-min\\-replicas" in pages["torrentdist-upload.1"]
    assert "torrentdist\\-bundle(1)" in pages["torrentdist.1"]


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff")
def test_the_pages_are_clean(pages: dict[str, str], tmp_path: Path) -> None:
    """If this fails, a page is shown with its commands in the text, or parts of it are lost."""
    command = ["groff", "-man", "-Tutf8", "-ww", "-z"]
    said = {name: subprocess.run(command, input=text, capture_output=True, text=True) for name, text in pages.items()}

    assert {} == {name: ran.stderr for name, ran in said.items() if ran.stderr or ran.returncode}


def test_the_wheel_takes_the_pages_along() -> None:
    """If this fails, an installation has no manual pages."""
    makefile, project = (ROOT / "Makefile").read_text(), (ROOT / "pyproject.toml").read_text()
    wheel = makefile.partition("\nwheel:")[2].partition("\n\n")[0]

    assert wheel.index("scripts/man_pages.py build/man") < wheel.index("pip wheel")
    assert '"share/man/man1" = ["build/man/*.1"]' in project
