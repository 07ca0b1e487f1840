"""Asks this host's gateway for a bundle: where it lies, or parts of its files while it arrives.

Always: a call works in every thread and after a fork, since each has a connection of its own. The
kernel says that root, this user or the supervisor's listens there.
Never: give the gateway the cluster's token, because any process may listen on its port.
"""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

from torrentdist.http.port_owner import is_trusted_listener
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.headers import CLIENT

CALL_SECS = 5.0
"""Longest wait for an answer about a bundle."""
MOST_TOLD = 1024 * 1024
"""Bytes that are read of an answer about a bundle, or of an error."""
READ_SECS = 120.0
"""Longest wait for bytes of an arriving bundle. The gateway itself gives up earlier, and says
why."""


class GatewayAway(Exception):
    """No gateway answers, so the bundle has to come from elsewhere."""


class GatewayReader:
    def __init__(self, url: str, data_dir: str = "") -> None:
        """`data_dir`: the supervisor's directory, whose owner is trusted."""
        self._data_dir = data_dir
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._url = url

    def local(self, bundle: str) -> Path | None:
        """Returns the bundle's directory on this host; None if the bundle is not here yet. Raises
        GatewayAway."""
        try:
            with self._answer(f"/v1/host/bundles/{quote(bundle)}", {}, CALL_SECS) as answer:
                view = json.loads(answer.read(MOST_TOLD))
                return Path(view["path"]) if view.get("state") == "done" and view.get("path") else None
        except TorrentdistError as error:
            if error.code == "supervisor_unreachable":
                raise GatewayAway(error.message) from error
            return None
        except (ValueError, AttributeError, TypeError, RecursionError) as exc:
            raise GatewayAway("another program listens there") from exc

    def read(self, bundle: str, path: str, start: int, end: int) -> bytes:
        """Returns a part of a file. The gateway fetches the bundle if it is not here, and answers
        when this part has arrived."""
        if start >= end:
            return b""
        where = f"/bundles/{quote(bundle)}/files/{quote(path)}"
        with self._answer(where, {"Range": f"bytes={start}-{end - 1}"}, READ_SECS) as answer:
            data = answer.read(end - start + 1)
            if len(data) < end - start:
                raise http.client.IncompleteRead(data, end - start - len(data))
        if len(data) > end - start:
            raise TorrentdistError("corrupt", path=path, detail=f"more than {end - start} bytes came")
        return data

    @contextmanager
    def _answer(self, path: str, headers: dict[str, str], secs: float) -> Iterator[http.client.HTTPResponse]:
        if not is_trusted_listener(self._url, self._data_dir):
            detail = "no program of root, of this user or of the supervisor's listens there"
            raise TorrentdistError("supervisor_unreachable", url=self._url, detail=detail)
        connection = http.client.HTTPConnection(self._host, self._port, timeout=secs)
        try:
            connection.request("GET", path, headers={CLIENT: "1", **headers})
            answer = connection.getresponse()
            if answer.status >= 400:
                raise _error_in(answer)
            yield answer
        except (OSError, http.client.HTTPException) as exc:
            raise TorrentdistError("supervisor_unreachable", url=self._url, detail=str(exc) or repr(exc)) from exc
        finally:
            connection.close()


def _error_in(answer: http.client.HTTPResponse) -> TorrentdistError:
    try:
        return TorrentdistError.from_wire(json.loads(answer.read(MOST_TOLD)))
    except (ValueError, AttributeError, RecursionError):
        return TorrentdistError("internal", detail=f"HTTP {answer.status}")
