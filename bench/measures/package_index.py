"""Measures `uv pip install` of many wheels from a bundle's index against `--find-links` on a local
directory of the same wheels.

The wheels are packed from what is installed beside this interpreter, so that they have the sizes of
real ones and nothing is downloaded. Every installation has an empty cache of its own. Both sides
take turns.

Run it alone with `python -m bench --only package-index`.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import uv

from bench.results import Row, paired
from bench.stage import Ended, cluster_of, run, torrentdist

BAR = 1.1
LARGEST = 100 * 1000 * 1000
"""Bytes of the largest package that is packed. PySpark's jars would be nine tenths of all bytes."""


def measure(directory: Path, *, wheels: int, rounds: int) -> list[Row]:
    names = pack_wheels(directory / "wheels", wheels)
    size = sum(path.stat().st_size for path in (directory / "wheels").iterdir())
    with cluster_of(directory / "cluster", masters=1, supervisors=1) as cluster:
        torrentdist(cluster, "upload", str(directory / "wheels"), "--id", "wheels", "--min-replicas", "1")
        torrentdist(cluster, "bundle", "distribute", "wheels")
        gateway = cluster.member("supervisor-1").gateway
        from_view = ["--default-index", f"{gateway}/simple/wheels/"]
        from_directory = ["--no-index", "--find-links", str(directory / "wheels")]
        first = _install(directory, names, from_view).seconds
        _install(directory, names, from_directory)
        pairs = [
            (_install(directory, names, from_view).seconds, _install(directory, names, from_directory).seconds)
            for _ in range(rounds)
        ]
    note = f"{size / 1e6:.0f} MB; the first time, when the hashes are computed, {first:.2f} s"
    what = f"installing {len(names)} wheels with uv from a bundle's index"
    return [paired("package-index", what, pairs, against="--find-links on a local directory", bar=BAR, note=note)]


def _install(directory: Path, names: list[str], source: list[str]) -> Ended:
    for leftover in ("site", "uv-cache"):
        shutil.rmtree(directory / leftover, ignore_errors=True)
    options = ["--no-deps", "--no-config", "--target", "site", "--cache-dir", "uv-cache", "--python", sys.executable]
    return run([uv.find_uv_bin(), "pip", "install", "--quiet", *options, *source, *names], directory)


# wheels of what is installed


def pack_wheels(folder: Path, most: int) -> list[str]:
    """Packs installed packages into wheels. Returns their names with versions."""
    folder.mkdir()
    packed: list[str] = []
    for distribution in sorted(importlib.metadata.distributions(), key=lambda one: one.name.lower()):
        if len(packed) < most and _pack(distribution, folder):
            packed.append(f"{distribution.name}=={distribution.version}")
    if len(packed) < most:
        raise RuntimeError(f"only {len(packed)} packages are installed")
    return packed


def _pack(distribution: importlib.metadata.Distribution, folder: Path) -> bool:
    wheel = distribution.read_text("WHEEL")
    files = list(_files(distribution))
    if wheel is None or "Root-Is-Purelib" not in wheel or not any(path.endswith("/RECORD") for path, _ in files):
        return False
    if sum(place.stat().st_size for _, place in files) > LARGEST:
        return False
    tags = [tag.split("-") for tag in re.findall(r"^Tag: (\S+-\S+-\S+)", wheel, re.MULTILINE)]
    tag = "-".join(".".join(dict.fromkeys(part)) for part in zip(*tags, strict=True))
    name = re.sub(r"[-_.]+", "_", distribution.name).lower()
    with zipfile.ZipFile(folder / f"{name}-{distribution.version}-{tag}.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for path, place in files:
            archive.write(place, path)
    return True


def _files(distribution: importlib.metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """Yields what a wheel of the package holds: no scripts, and nothing that was compiled."""
    added_by_installers = ("INSTALLER", "REQUESTED", "direct_url.json")
    for path in distribution.files or ():
        place = Path(os.fspath(path.locate()))
        if path.parts[0] != ".." and path.suffix != ".pyc" and path.name not in added_by_installers and place.is_file():
            yield path.as_posix(), place
