"""The Debian package: built as `make deb` builds it, and installed by dpkg into its own root."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torrentdist import __version__

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.alone


def dpkg(root: Path, *arguments: str) -> str:
    force = ["--force-not-root", "--force-script-chrootless", "--force-depends", "--force-confnew"]
    command = ["dpkg", f"--root={root}", "--log=/dev/null", *force, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns the path of the package."""
    if shutil.which("dpkg-deb") is None or not os.access("/usr/bin/python3", os.X_OK):
        pytest.skip("this machine has no dpkg, or no Python of its own")
    env, out = {**os.environ, "PIP_PYTHON": sys.executable}, tmp_path_factory.mktemp("deb")
    built = subprocess.run(
        [str(ROOT / "scripts/deb"), str(out)], env=env, capture_output=True, text=True, timeout=240, check=False
    )
    assert built.returncode == 0, built.stderr
    return built.stdout.strip()


def test_lintian_has_no_complaint(package: str) -> None:
    """A repository would refuse the package. It takes long: lintian reads every file."""
    if shutil.which("lintian") is None:
        pytest.skip("there is no lintian")
    run = subprocess.run(["lintian", "--allow-root", package], capture_output=True, text=True, timeout=120, check=False)

    assert "" == run.stdout


def test_the_package_installs_runs_and_goes(package: str, tmp_path: Path) -> None:
    """If this fails, a Debian host gets an environment that does not start, no users, units or
    manual pages, or a removal that deletes data."""
    root = tmp_path / "root"
    for directory in ("var/lib/dpkg/updates", "var/lib/dpkg/info", "etc", "var/lib/torrentdist/master"):
        (root / directory).mkdir(parents=True)
    for file in ("var/lib/dpkg/status", "var/lib/dpkg/available", "etc/passwd", "etc/group", "etc/shadow"):
        (root / file).touch()
    (root / "var/lib/torrentdist/master/last-copy").touch()
    dpkg(root, "--install", package)
    home = root / "opt/torrentdist/bin"
    version = subprocess.run(
        [str(home / "python"), "-I", "-m", "torrentdist_cli", "--version"], capture_output=True, text=True, check=False
    )
    users = [line.split(":")[0] for line in (root / "etc/passwd").read_text().splitlines()]
    group = [line for line in (root / "etc/group").read_text().splitlines() if line.startswith("torrentdist-readers:")]
    units = sorted(path.name for path in (root / "lib/systemd/system").iterdir())
    script = (home / "torrentdist").read_text()
    linked = os.readlink(root / "usr/bin/torrentdist")
    listed = dpkg(root, "--list", "torrentdist")
    manual = root / "usr/share/man/man1"
    page = gzip.decompress((manual / "torrentdist-bundle-distribute.1.gz").read_bytes()).decode()
    pages = sorted(path.name for path in manual.iterdir())
    shipped = subprocess.run(["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True).stdout
    compiled = list(root.glob("opt/torrentdist/lib/python3*/site-packages/torrentdist/__pycache__/*.pyc"))
    dpkg(root, "--remove", "torrentdist")

    assert (0, True) == (version.returncode, __version__ in version.stdout), version.stderr
    assert "__pycache__" not in shipped
    assert [] != compiled
    assert ["torrentdist", "torrentdist-jobs"] == users
    assert ["torrentdist"] == [line.rpartition(":")[2] for line in group]
    assert sorted(path.name for path in (ROOT / "docker/systemd").glob("*.s[eo]*")) == units
    assert script.startswith("#!/opt/torrentdist/bin/python")
    assert "/opt/torrentdist/bin/torrentdist" == linked
    assert "ii  torrentdist" in listed
    assert page.startswith('.TH "TORRENTDIST-BUNDLE-DISTRIBUTE"')
    assert {"torrentdist.1.gz", "torrentdist-upload.1.gz"} <= set(pages)
    assert [] == list(root.glob("usr/share/man/man1/torrentdist*"))
    assert not (root / "opt/torrentdist").exists()
    assert (root / "var/lib/torrentdist/master/last-copy").exists()
