"""The template of a plug-in, installed by pip as a stranger installs it, passes the suite."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TEMPLATE = ROOT / "templates" / "distributor-plugin"
SECS = 300


def run(*command: object, cwd: Path | str) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=SECS, check=False
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The Python of an environment with our wheel. No index is asked: the wheel's dependencies are
    those of the environment that runs the tests."""
    sources = tmp_path / "sources"
    for name in ("torrentdist", "cli"):
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    pip = (sys.executable, "-m", "pip")
    run(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, sources, cwd=tmp_path)
    [wheel] = tmp_path.glob("torrentdist-*.whl")
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    [site] = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    install = (python, "-m", "pip", "install", "--no-index", "--no-build-isolation", "--ignore-installed", "--no-deps")
    run(*install, wheel, cwd=tmp_path)
    return python


def test_the_template_works_after_pip_install(python: Path, tmp_path: Path) -> None:
    """If this fails, the first thing that the author of a plug-in sees is an error of ours. It
    takes long: pip builds and installs a package."""
    project = tmp_path / "my-plugin"
    shutil.copytree(TEMPLATE, project, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    run(python, "-m", "pip", "install", "--no-index", "--no-build-isolation", ".[test]", cwd=project)

    said = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=project)
    where = run(
        python, "-c", "import torrentdist, acme_distributor as a; print(torrentdist.__file__, a.__file__)", cwd="/"
    )

    assert re.search(r"\b[1-9]\d+ passed", said), said
    assert "failed" not in said
    assert where.count(str(tmp_path / "venv")) == 2
