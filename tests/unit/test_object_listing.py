"""Objects on a web server and in WebHDFS are listed and read as a directory is. The NameNode is one
of ours; tests/engines has the real one."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.storage import object_listing
from torrentdist.client.storage.object_hashing import hash_objects
from torrentdist.client.storage.object_listing import list_objects, listing_of
from torrentdist.model.errors import TorrentdistError
from torrentdist.testing.sample_trees import write_tree

TREE = {"a": b"1" * 5000, "d/b": b"2", "d/e/c": b"3" * 70}


class QuietPages(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


class NameNode(BaseHTTPRequestHandler):
    """Answers for TREE, as WebHDFS does, with the faults of its server. It is a DataNode, too."""

    server: StorageServer

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        path, asked = url.path.removeprefix("/webhdfs/v1").strip("/"), parse_qs(url.query)
        below = {name for name in TREE if not path or name.startswith(f"{path}/")}
        match asked["op"][0]:
            case _ if path in self.server.refused:
                told = {"exception": "AccessControlException", "message": f"{path}: permission denied"}
                self._answer(403, {"RemoteException": told})
            case "LISTSTATUS" if path in TREE:
                self._answer(200, {"FileStatuses": {"FileStatus": [_status("", TREE[path])]}})
            case "LISTSTATUS":
                names = {name.removeprefix(f"{path}/").partition("/")[0] for name in below}
                found = [_status(name, TREE.get(f"{path}/{name}".lstrip("/"))) for name in names]
                self._answer(200, {"FileStatuses": {"FileStatus": found}})
            case "GETFILESTATUS":
                self._answer(200, {"FileStatus": _status("", TREE.get(path))})
            case "OPEN" if "there" not in asked:
                self.send_response(307)
                self.send_header("Location", f"http://{self.headers['Host']}{self.path}&there=1")
                self._end(b"")
            case "OPEN":
                self.server.hold.wait(20)
                if self.server.faults:
                    self._answer(*self.server.faults.pop())
                else:
                    start = int(asked["offset"][0])
                    self.send_response(200)
                    self._end(TREE[path][start : start + int(asked["length"][0])])

    def _answer(self, status: int, body: object) -> None:
        self.send_response(status)
        self._end(json.dumps(body).encode())

    def _end(self, data: bytes) -> None:
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _status(name: str, data: bytes | None) -> dict[str, Any]:
    kind = {"type": "DIRECTORY", "length": 0} if data is None else {"type": "FILE", "length": len(data)}
    return {"pathSuffix": name, "modificationTime": 7, **kind}


class StorageServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, handler: Any) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.refused: set[str] = set()
        self.faults: list[tuple[int, object]] = []
        """What the DataNode answers to the next reads, the last one first."""
        self.hold = threading.Event()
        self.hold.set()
        self.place = f"127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients go before they have their answer


@contextmanager
def serving(handler: Any) -> Iterator[StorageServer]:
    with StorageServer(handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield server
        finally:
            server.hold.set()
            server.shutdown()


@pytest.fixture
def namenode(monkeypatch: pytest.MonkeyPatch) -> Iterator[StorageServer]:
    monkeypatch.setenv("NO_PROXY", "*")
    with serving(NameNode) as server:
        yield server


@pytest.fixture
def top(tmp_path: Path) -> Path:
    write_tree(tmp_path / "top", TREE)
    return tmp_path / "top"


def hashed(url: str) -> str:
    return hash_objects(list_objects(url), lambda done, total: None).digest


def test_a_directory_of_a_web_server_is_a_bundle(top: Path) -> None:
    """`upload https://…` would end as a bug, though docs/s3.md says that it works."""
    with serving(functools.partial(QuietPages, directory=str(top.parent))) as server:
        found = [hashed(f"http://{server.place}/{path}") for path in ("top", "top/")]

    assert [make_metafile(top, packed=False).digest] * 2 == found


def test_links_that_sort_a_web_page_are_no_objects(top: Path) -> None:
    """A bundle from Apache's lists would have files such as `?C=N;O=D`."""

    class Sorted(QuietPages):
        def list_directory(self, path: Any) -> Any:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b'<a href="?C=N;O=D">Name</a> <a href="a">a</a>')

    with serving(functools.partial(Sorted, directory=str(top))) as server:
        assert ["a"] == [each.path for each in list_objects(f"http://{server.place}/").objects]


def test_one_file_of_a_web_server_is_a_bundle(top: Path) -> None:
    """An upload of a dataset's one file would end as a bug."""
    with serving(functools.partial(QuietPages, directory=str(top))) as server:
        assert make_metafile(top / "a", packed=False).digest == hashed(f"http://{server.place}/a")
        with pytest.raises(TorrentdistError) as missing:
            list_objects(f"http://{server.place}/no-such-file")

    assert "path_not_found" == missing.value.code


def test_an_object_of_unknown_size_is_refused() -> None:
    """A page that a server makes anew for each reader would end the upload as a bug."""
    with pytest.raises(TorrentdistError) as unknown:
        listing_of("https://h/a", None, "https://h/a", {"https://h/a": {"size": None, "type": "file"}})

    assert "storage_failed" == unknown.value.code


def test_a_directory_and_a_file_of_webhdfs_are_bundles(top: Path, namenode: StorageServer) -> None:
    """Data in HDFS would be another bundle than the same files on a disk, and one file would be no
    bundle at all."""
    assert make_metafile(top, packed=False).digest == hashed(f"webhdfs://{namenode.place}/")
    assert make_metafile(top / "a", packed=False).digest == hashed(f"webhdfs://{namenode.place}/a")


def test_a_directory_that_cannot_be_listed_ends_it(namenode: StorageServer) -> None:
    """A bundle would lack the directories that its uploader may not read, and nobody would know."""
    namenode.refused = {"d/e"}
    with pytest.raises(TorrentdistError) as refused:
        list_objects(f"webhdfs://{namenode.place}/")

    assert "forbidden" == refused.value.code


def test_what_a_datanode_refuses_is_no_content(namenode: StorageServer) -> None:
    """A bundle would hold the text of an error, if that is as long as the object."""
    text = "x" * (len(TREE["a"]) - 2)
    listing = list_objects(f"webhdfs://{namenode.place}/a")
    namenode.faults = [(403, text)]
    with pytest.raises(TorrentdistError) as refused:
        hash_objects(listing, lambda done, total: None)

    assert "storage_failed" == refused.value.code


def test_an_old_connection_of_a_datanode_fails_no_upload(top: Path, namenode: StorageServer) -> None:
    """The first upload after a restart of the NameNode would fail once for each DataNode."""
    ended = {"exception": "EOFException", "message": "End of File Exception between w1 and head"}
    namenode.faults = [(500, {"RemoteException": ended})]

    assert make_metafile(top / "a", packed=False).digest == hashed(f"webhdfs://{namenode.place}/a")


def test_a_datanode_that_says_nothing_ends_it(namenode: StorageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload would wait for ever."""
    monkeypatch.setattr(object_listing, "SILENT_SECS", 1.0)
    listing = list_objects(f"webhdfs://{namenode.place}/a")
    namenode.hold.clear()
    with pytest.raises(TorrentdistError) as silent:
        hash_objects(listing, lambda done, total: None)

    assert "storage_failed" == silent.value.code
