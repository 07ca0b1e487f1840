"""Makes the versions that are compared: pip environments with one package patched, the same as one
.tar, and the jars of two releases of PySpark.

Always: packages come from the index, pinned by version and hash in packages/. A new version keeps
every file of the old one that its packages did not change, with its times.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

PACKAGES = Path(__file__).with_name("packages")
PATCHED = ("pandas", "pandas-2.2.2.dist-info", "pandas.libs")
"""What the older release of the patched package installs."""


class Versions(NamedTuple):
    old: Path
    new: Path


def size_of(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files if not file.is_symlink())


def environment(top: Path, base: str) -> Versions:
    """Installs the packages of `base`, and makes a copy in which pandas is patched."""
    versions = Versions(top / base / "old", top / base / "new")
    if not versions.new.exists():
        _install(versions.old, base)
        shutil.copytree(versions.old, versions.new, symlinks=True)
        for name in PATCHED:
            shutil.rmtree(versions.new / name, ignore_errors=True)
        _install(versions.new, "patched")
    return versions


def archives(versions: Versions, kind: str) -> Versions:
    """Packs each version into one .tar: with the times of its files (`kept`), or without
    (`same`)."""
    top = versions.old.parent / kind
    top.mkdir(exist_ok=True)
    made = Versions(top / "env-42.tar", top / "env-43.tar")
    for source, target in zip(versions, made, strict=True):
        if not target.exists():
            with tarfile.open(target, "w") as archive:
                archive.add(source, "env", filter=None if kind == "kept" else _without_time)
    return made


def _without_time(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = 0  # as `tar --mtime=@0` does
    return member


def jars(top: Path) -> Versions:
    """Unpacks the jars of PySpark 3.5.4 and 3.5.5."""
    versions = Versions(top / "jars" / "3.5.4", top / "jars" / "3.5.5")
    for target in versions:
        if target.exists():
            continue
        _pip("download", f"jars-{target.name}", "--no-build-isolation", "--dest", str(top / "pyspark"))
        [source] = (top / "pyspark").glob(f"pyspark-{target.name}.tar.gz")
        target.mkdir(parents=True)
        with tarfile.open(source) as archive:
            for member in archive:
                if member.isfile() and member.name.endswith(".jar"):
                    member.name = Path(member.name).name
                    archive.extract(member, target, filter="data")
    return versions


def _install(target: Path, packages: str) -> None:
    _pip("install", packages, "--only-binary", ":all:", "--no-compile", "--target", str(target), "--upgrade")


def _pip(command: str, packages: str, *options: str) -> None:
    pinned = ["--no-deps", "--require-hashes", "-r", str(PACKAGES / f"{packages}.txt")]
    subprocess.run(
        [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", *pinned, *options], check=True
    )
