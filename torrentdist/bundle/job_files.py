"""Reads the job.toml of a bundle, and checks that the files that it names are there and its program
is executable.

Always: a program without a slash may come from the host's PATH, which is not known here. Any other
program is a file of the bundle.
Never: read any other file, or more than the longest job.toml.
"""

from pathlib import Path

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.jobs.job import FILE_NAME, MAX_JOB_CHARS, JobKind, JobSpec
from torrentdist.model.jobs.spark_job import files_of
from torrentdist.model.wording import cause_text

_MOST_BYTES = 4 * MAX_JOB_CHARS
"""A character has four bytes at most."""


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


def job_text(directory: Path, origin: str) -> str | None:
    """Returns the job.toml of a directory; None if it has none.

    `job_invalid` names `origin`: it is no text, or longer than any job.
    """
    path = directory / FILE_NAME
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise TorrentdistError("job_invalid", origin=origin, detail=f"it has more than {_MOST_BYTES} bytes")
        return data.decode()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise TorrentdistError("job_invalid", origin=origin, detail=cause_text(exc)) from exc
