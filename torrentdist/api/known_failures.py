"""Finds the error of the table that stands for an exception of Python or of the system.

Pure: no I/O.
Never: hide a bug of ours. An exception that nobody expects stays what it is.
"""

import errno
import os

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wording import os_sentence

_DISK_ERRNOS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.EFBIG, errno.ENOTDIR}
)
_EXTRAS = {"pyspark": "spark", "pyarrow": "spark", "pandas": "spark", "py4j": "spark"}
"""The extra that installs a package. Every other package comes with `server`."""


def known_failure(exc: BaseException) -> TorrentdistError | None:
    """Returns the error of the table that matches an exception, or None for a bug of ours."""
    if isinstance(exc, TorrentdistError):
        return exc
    if isinstance(exc, BaseExceptionGroup):
        return next((found for inner in exc.exceptions if (found := known_failure(inner)) is not None), None)
    if isinstance(exc, OSError) and exc.errno in _DISK_ERRNOS:
        path = os.fsdecode(exc.filename) if isinstance(exc.filename, str | bytes) else "the output"
        error = TorrentdistError("disk_error", path=path, detail=os_sentence(exc))
        error.__cause__ = exc.__cause__
        return error
    if isinstance(exc, ModuleNotFoundError):
        return _missing_package(exc)
    return None


def _missing_package(exc: ModuleNotFoundError) -> TorrentdistError | None:
    """Returns the error that says what to install, or None for a missing module of ours, which is a
    bug."""
    missing = (exc.name or "torrentdist").partition(".")[0]
    if missing.startswith("torrentdist"):
        return None
    detail = f"this command needs {missing}, which is not installed"
    package = f"torrentdist[{_EXTRAS.get(missing, 'server')}]"
    return TorrentdistError("missing_dependency", detail=detail, package=package)
