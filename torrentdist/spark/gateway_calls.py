"""Calls to this host's gateway with the standard library alone, because every Python worker imports
it.

Always: an error that the gateway answers is raised as that error. On loopback, the kernel says that
root, this user or the supervisor's listens there.
Never: import a large library.
"""

import json
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from torrentdist.http.port_owner import is_listening, is_trusted_listener
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.loopback import is_loopback

CLIENT = "X-Torrentdist"
"""As in `model/wire/headers.py`, which imports more. The gateway refuses a POST without it."""
VARIABLE = "TORRENTDIST_GATEWAY"
DATA_VARIABLE = "TORRENTDIST_SUPERVISOR_DATA_DIR"
USUAL_DATA = "/var/lib/torrentdist/supervisor"
DEFAULT = "http://127.0.0.1:7070"
POLL_SECS = 20.0
"""Longest wait of one long poll."""
CALL_SECS = 10.0
"""Time for an answer, besides the wait that the call asks for."""

_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def gateway_url(given: str | None = None) -> str:
    return (given or os.environ.get(VARIABLE) or DEFAULT).rstrip("/")


def fetch_here(bundle: str, url: str, timeout: float) -> Path:
    """Returns the bundle's directory on this host. Fetches the bundle first if necessary."""
    if not _may_be_believed(url):
        detail = f"a program of another user listens there, or {DATA_VARIABLE} names another directory"
        raise TorrentdistError("supervisor_unreachable", url=url, detail=detail)
    deadline = time.monotonic() + timeout
    view = _ask(f"{url}/v1/host/bundles/{bundle}/fetch", "POST", CALL_SECS)
    while view["state"] != "done":
        left = deadline - time.monotonic()
        if left <= 0:
            raise TorrentdistError("timed_out", what=f"fetching {bundle}", seconds=timeout)
        wait = min(POLL_SECS, left)
        view = _ask(f"{url}/v1/host/bundles/{bundle}?wait={wait:.3f}", "GET", wait + CALL_SECS)
    path = Path(view["path"])
    if not is_readable(path):
        raise TorrentdistError("not_a_reader", user=os.getuid())
    return path


def _may_be_believed(url: str) -> bool:
    """Whether files that the gateway names may be run. A port of this host is open to every user;
    another address was chosen by whoever configured it."""
    host = urlsplit(url).hostname or ""
    trusted = is_trusted_listener(url, os.environ.get(DATA_VARIABLE) or USUAL_DATA)
    return trusted or not is_loopback(host) or not is_listening(url)


def is_readable(path: Path) -> bool:
    return os.access(path, os.R_OK | os.X_OK)


def _ask(url: str, method: str, timeout: float) -> dict[str, Any]:
    request = urllib.request.Request(url, method=method, headers={CLIENT: "1"})
    try:
        with _opener.open(request, timeout=timeout) as response:
            return dict(json.load(response))
    except urllib.error.HTTPError as answer:
        with answer:
            raise _error_of(answer, url) from None
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "reason", exc)
        raise TorrentdistError("supervisor_unreachable", url=url.partition("/v1/")[0], detail=reason) from exc


def _error_of(answer: urllib.error.HTTPError, url: str) -> TorrentdistError:
    try:
        return TorrentdistError.from_wire(json.load(answer))
    except ValueError:
        return TorrentdistError("internal", detail=f"{url} answered {answer.code}")
