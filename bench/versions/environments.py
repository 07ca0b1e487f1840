"""Makes the versions that are compared: pip environments with one package patched, the same as one
.tar, and the jars of two releases of PySpark.

Always: packages come from the index, pinned by version and hash in packages/. A new version keeps
every file of the old one that its packages did not change, with its times. What exists is complete
and is used again: it gets its name when it is made.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.measures.small_files import make_tree

PACKAGES = Path(__file__).with_name("packages")
MIB = 1024 * 1024
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
    if not versions.old.exists():
        with _made(versions.old) as part:
            _install(part, base)
    if not versions.new.exists():
        with _made(versions.new) as part:
            shutil.copytree(versions.old, part, symlinks=True)
            for name in PATCHED:
                shutil.rmtree(part / name, ignore_errors=True)
            _install(part, "patched")
    return versions


def sample(top: Path, mib: int) -> Versions:
    """Makes two small versions without packages, to try the measurements."""
    versions = Versions(top / "sample" / "old", top / "sample" / "new")
    if not versions.new.exists():
        same, changed = (random.Random(seed).randbytes(mib * MIB) for seed in (1, 2))
        for target in versions:
            with _made(target) as part:
                part.mkdir(parents=True)
                (part / "same.bin").write_bytes(same)
                (part / "changed.bin").write_bytes(changed[: MIB if target == versions.new else MIB // 2])
    return versions


def scattered(top: Path, files: int) -> Versions:
    """Makes a tree of small files, and a copy in which one of a hundred changed, at random."""
    versions, chance = Versions(top / f"small-{files}" / "old", top / f"small-{files}" / "new"), random.Random(files)
    if not versions.old.exists():
        with _made(versions.old) as part:
            make_tree(part, files)
    if not versions.new.exists():
        with _made(versions.new) as part:
            shutil.copytree(versions.old, part)
            for path in chance.sample(sorted(part.rglob("*.py")), files // 100):
                path.write_bytes(chance.randbytes(chance.randint(100, 4000)))
    return versions


@contextmanager
def _made(target: Path) -> Iterator[Path]:
    """Yields the place for something that gets its name when it is complete."""
    part = target.with_name(target.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(part, ignore_errors=True)
    part.unlink(missing_ok=True)
    yield part
    part.rename(target)


def archives(versions: Versions, kind: str) -> Versions:
    """Packs each version into one .tar: with the times of its files (`kept`), or without
    (`same`)."""
    top = versions.old.parent / kind
    top.mkdir(exist_ok=True)
    made = Versions(top / "env-42.tar", top / "env-43.tar")
    for source, target in zip(versions, made, strict=True):
        if not target.exists():
            with _made(target) as part, tarfile.open(part, "w") as archive:
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
        with _made(target) as part, tarfile.open(source) as archive:
            part.mkdir()
            for member in archive:
                if member.isfile() and member.name.endswith(".jar"):
                    member.name = Path(member.name).name
                    archive.extract(member, part, filter="data")
    return versions


def _install(target: Path, packages: str) -> None:
    _pip("install", packages, "--only-binary", ":all:", "--no-compile", "--target", str(target), "--upgrade")


def _pip(command: str, packages: str, *options: str) -> None:
    pinned = ["--no-deps", "--require-hashes", "-r", str(PACKAGES / f"{packages}.txt")]
    subprocess.run(
        [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", *pinned, *options], check=True
    )
