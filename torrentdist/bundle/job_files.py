"""Checks that a bundle contains the files that its job names, and that the job's program is
executable.

Always: a program without a slash may come from the host's PATH, which is not known here. Any other
program is a file of the bundle.
Never: read the files.
"""

from __future__ import annotations

from pathlib import Path

from torrentdist.model.jobs.job import JobKind, JobSpec
from torrentdist.model.jobs.spark_job import files_of


def file_problem(directory: Path, spec: JobSpec) -> tuple[str, str] | None:
    """Returns the key of the first bad file and its problem, or None."""
    if spec.kind is JobKind.SPARK:
        names = [(key, name) for key, name, _ in files_of(spec.command, spec.spark)]
        missing = next(((key, name) for key, name in names if _inside(directory, name) is None), None)
        return None if missing is None else (missing[0], f"there is no {missing[1]} in the bundle")
    program = spec.command[0]
    if program.startswith("/"):
        return None
    found = _inside(directory, program)
    if found is None:
        return ("command", f"there is no {program} in the bundle") if "/" in program else None
    return None if found.stat().st_mode & 0o100 else ("command", f"{program} is not executable")


def _inside(directory: Path, name: str) -> Path | None:
    """Returns the regular file with this name, or None if it is not inside the directory."""
    try:
        root = directory.resolve(strict=True)
        found = (root / name).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        return None
    return found if found.is_relative_to(root) and found.is_file() else None
