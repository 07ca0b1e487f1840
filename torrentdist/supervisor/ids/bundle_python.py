"""The program that is `spark.pyspark.python`: waits for the environment that TORRENTDIST_ENV names,
and becomes its Python.

Always: it holds a lease on the bundles that it waited for, which all its
Python workers inherit. It waits for what may still come, and ends at once for what never comes.
Never: print to stdout, where Spark expects a port; or import more than the standard library, since
the supervisor copies this file to where every user may run it.

    TORRENTDIST_ENV         the bundle with the environment; without it, `python3` is the Python
    TORRENTDIST_BUNDLES     other bundles to wait for, separated by commas
    TORRENTDIST_WAIT_SECS   how long to wait at most: an hour
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import stat
import sys
import time
from typing import Any, NoReturn

HERE = os.path.dirname(os.path.abspath(__file__))
IDS = HERE[: -len(".spark")]
ENV, BUNDLES, WAIT = "TORRENTDIST_ENV", "TORRENTDIST_BUNDLES", "TORRENTDIST_WAIT_SECS"
WAIT_SECS = 3600.0
CALL_SECS = 30.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
WORD_SECS = 10.0
"""Seconds between two lines while it waits."""
LOCK_SECS = 2.0
LOG = "torrentdist"
"""The file in YARN's directory of a container's logs."""
ID = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
FINAL = {
    *("bundle_not_found", "invalid_id", "forbidden", "unauthorized", "not_for_host", "not_found"),
    *("unsigned_bundle", "unknown_key", "bad_signature", "content_differs"),
}
"""Errors that no waiting ends."""
READERS = 'set store.readable_by in its supervisor\'s configuration, as in "group torrentdist-readers"'


class Unusable(Exception):
    """The words for the user."""


def say(text: str) -> None:
    print(f"torrentdist: {text}", file=sys.stderr, flush=True)


def _tell(text: str) -> None:
    """Says something in the log of the executor. Spark reads what an executor's Python prints only
    once it has started, which may be an hour later, or when it has failed."""
    log = _executors_log()
    if log is None:
        say(text)
        return
    try:
        os.write(log, f"torrentdist: {text}\n".encode())
    except OSError:
        say(text)
    finally:
        os.close(log)


def _executors_log() -> int | None:
    """Opens the stderr of the JVM that started this program, or, where writing there would be
    written over, a file beside it in YARN's directory of logs. None: there is neither."""
    parent = f"/proc/{os.getppid()}"
    path, flags = f"{parent}/fd/2", os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        if os.path.basename(os.readlink(f"{parent}/exe")) != "java":
            return None
        if stat.S_ISREG(os.stat(path).st_mode) and not _appends(f"{parent}/fdinfo/2"):
            folder = os.environ.get("LOG_DIRS", "").partition(",")[0]
            if not folder:
                return None
            path, flags = os.path.join(folder, LOG), flags | os.O_CREAT
        return os.open(path, flags, 0o640)
    except OSError:
        return None


def _appends(fdinfo: str) -> bool:
    """Whether a process writes to the end of its file, wherever others have written."""
    with open(fdinfo) as file:
        flags = next(line.split()[1] for line in file if line.startswith("flags:"))
    return bool(int(flags, 8) & os.O_APPEND)


def main() -> int:
    env = os.environ.get(ENV, "")
    others = [name.strip() for name in os.environ.get(BUNDLES, "").split(",") if name.strip()]
    try:
        deadline = time.monotonic() + float(os.environ.get(WAIT) or WAIT_SECS)
        gateway = _gateway()
        for bundle in [env] * bool(env) + others:
            if not ID.fullmatch(bundle):
                raise Unusable(f"{bundle!r} is no id of a bundle: look at {ENV} and {BUNDLES}")
            _lease(gateway, bundle, deadline)
        _become(env)
    except (Unusable, ValueError) as exc:
        say(f"error: {exc}")
    return 1


def _gateway() -> tuple[str, int]:
    """Returns the host and port of this host's gateway."""
    try:
        with open(os.path.join(HERE, "gateway")) as file:
            written = file.read().strip()
    except OSError:
        written = "http://127.0.0.1:7070"
    address = (os.environ.get("TORRENTDIST_GATEWAY") or written).partition("://")[2].strip("/")
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _lease(gateway: tuple[str, int], bundle: str, deadline: float) -> None:
    """Holds a lease on a bundle and waits until it is here."""
    began = said = time.monotonic()
    pause, waits = FIRST_PAUSE, False
    lock: int | None = None
    file = os.path.join(IDS, ".leases", bundle)
    while True:
        wait, asked = 2 if lock is not None else 0, time.monotonic() - began
        answer, trouble = _ask(gateway, bundle, f"wait={wait}&asked={asked:.3f}")
        now = time.monotonic()
        if (answer is None or answer["state"] != "done") and (not waits or now - said >= WORD_SECS):
            said, waits = now, True
            _tell(f"waiting for bundle {bundle}{_progress(answer)}{': ' + trouble if trouble else ''}")
        if answer is not None:
            pause = FIRST_PAUSE
            if lock is None or not _is_same(lock, file):
                lock = _lock(file)
                if lock is not None:
                    continue  # What is here now stays: ask once more.
            elif answer["state"] == "done":
                if waits:
                    _tell(f"bundle {bundle} is here after {time.monotonic() - began:.1f} s")
                return
        if now > deadline:
            raise Unusable(f"bundle {bundle} did not come in time: {trouble or 'it still arrives'}")
        time.sleep(pause)
        pause = min(LONGEST_PAUSE, pause * 2)


def _progress(answer: dict[str, Any] | None) -> str:
    if not answer or not answer["size"]:
        return ""
    return f" ({answer['done'] / 1e6:.0f} of {answer['size'] / 1e6:.0f} MB are here)"


def _ask(gateway: tuple[str, int], bundle: str, query: str) -> tuple[dict[str, Any] | None, str]:
    """Returns the answer of the gateway, or None and why there is none yet."""
    head = f"POST /v1/host/bundles/{bundle}/lease?{query} HTTP/1.0\r\nHost: {gateway[0]}:{gateway[1]}\r\n"
    try:
        with socket.create_connection(gateway, CALL_SECS) as connection:
            connection.sendall(f"{head}X-Torrentdist: 1\r\nContent-Length: 0\r\n\r\n".encode())
            data = b"".join(iter(lambda: connection.recv(65536), b""))
        line, _, rest = data.partition(b"\r\n")
        body = json.loads(rest.partition(b"\r\n\r\n")[2])
        status = int(line.split()[1])
    except (OSError, ValueError, IndexError) as exc:
        return None, f"the supervisor of this host does not answer at {gateway[0]}:{gateway[1]} ({exc})"
    if status == 200:
        return body, ""
    trouble = f"{body.get('message') or body.get('error')}"
    if body.get("error") in FINAL:
        raise Unusable(f"{trouble}. {body.get('hint') or ''}".strip())
    return None, trouble


def _lock(path: str) -> int | None:
    """Locks the bundle's file for this process and all that inherit from it. None: try again."""
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except PermissionError:
        raise Unusable(f"user {os.getuid()} may not read the bundles of this host: {READERS}") from None
    deadline = time.monotonic() + LOCK_SECS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            break
        except OSError:
            if time.monotonic() > deadline:
                break  # Somebody else keeps the bundle by an exclusive lock.
            time.sleep(0.01)
    os.set_inheritable(file, True)
    if _is_same(file, path):
        return file
    os.close(file)
    return None


def _is_same(file: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except OSError:
        return False


def _become(env: str) -> NoReturn:
    """Replaces this program by the environment's Python."""
    os.environ["TORRENTDIST_IDS_DIR"] = IDS
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")  # Root could write into the bundle.
    if not env:
        os.execvp("python3", ["python3", *sys.argv[1:]])
    folder = os.path.join(IDS, env)
    for name in ("bin/python3", "bin/python"):
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK):
            try:
                os.execv(path, [path, *sys.argv[1:]])
            except OSError as exc:
                raise Unusable(f"{path} cannot be run here: {exc}") from None
    if not os.access(folder, os.R_OK | os.X_OK):
        raise Unusable(f"user {os.getuid()} may not read the bundles of this host: {READERS}")
    raise Unusable(f"bundle {env} has no bin/python3 that can be run, so it is no Python environment")


if __name__ == "__main__":
    sys.exit(main())
