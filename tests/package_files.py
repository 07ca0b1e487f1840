"""Wheels, sdists and Maven artifacts for tests, made without their build tools."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path


def make_wheel(
    folder: Path, name: str, version: str = "1.0", *, requires: Iterable[str] = (), python: str = "", value: str = "1"
) -> Path:
    """Writes a wheel with one module, which has a `VALUE`."""
    folder.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_").replace(".", "_").lower()
    info = f"{module}-{version}.dist-info"
    files = {
        f"{module}.py": f"VALUE = {value!r}\n",
        f"{info}/METADATA": metadata_of(name, version, requires=requires, python=python),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{path},sha256={_record_hash(text)},{len(text.encode())}\n" for path, text in files.items()]
    files[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"])
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, text in files.items():
            archive.writestr(zipfile.ZipInfo(file, (2024, 1, 1, 0, 0, 0)), text)
    return path


def make_sdist(folder: Path, name: str, version: str = "1.0", *, python: str = "") -> Path:
    """Writes an sdist that has nothing but its metadata."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}.tar.gz"
    data = metadata_of(name, version, python=python).encode()
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(f"{name}-{version}/PKG-INFO")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return path


def metadata_of(name: str, version: str, *, requires: Iterable[str] = (), python: str = "") -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Python: {python}"] if python else []
    return "\n".join([*lines, *(f"Requires-Dist: {each}" for each in requires)]) + "\n\n"


def make_artifact(
    top: Path, group: str, artifact: str, version: str, *, needs: Iterable[tuple[str, str, str]] = ()
) -> Path:
    """Writes a jar with a resource `<artifact>.txt`, and its pom, in the layout of Maven."""
    folder = top / group.replace(".", "/") / artifact / version
    folder.mkdir(parents=True)
    dependencies = "".join(
        f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId><version>{v}</version></dependency>"
        for g, a, v in needs
    )
    (folder / f"{artifact}-{version}.pom").write_text(
        '<?xml version="1.0"?><project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )
    jar = folder / f"{artifact}-{version}.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr(zipfile.ZipInfo(f"{artifact}.txt", (2024, 1, 1, 0, 0, 0)), version)
    return jar


def _record_hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
