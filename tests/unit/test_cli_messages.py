"""What commands tell a user whose request cannot be carried out."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from cluster_by_script import BUNDLE, Answers

from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.fleet_messages import FleetView, HostBundleView, HostState
from torrentdist_cli.main import main

Capture = pytest.CaptureFixture[str]

NO_EXTRAS = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from torrentdist_cli.main import main
sys.exit(main(sys.argv[2:]))
"""


def said(capsys: Capture) -> str:
    return capsys.readouterr().err


def test_an_upload_wants_one_replica_at_least(tmp_path: Path, capsys: Capture) -> None:
    """With 0 it would end before any master had a byte, and call that 0 of 0 replicas."""
    assert 2 == main(["upload", str(tmp_path), "--min-replicas", "0"])
    assert "x>=1" in said(capsys)


def test_a_renamed_file_is_called_renamed(answers: Answers, tmp_path: Path, capsys: Capture) -> None:
    """The author of a single file would look for a difference in its content."""
    file = tmp_path / "a.py"
    file.write_text("x")
    meta = make_metafile(file)
    answers["GET /v1/bundles/etl-42"] = BUNDLE
    answers["GET /v1/bundles/etl-42/metafile"] = meta.raw
    answers["digest"] = meta.digest

    assert 9 == main(["upload", str(file.rename(tmp_path / "b.py")), "--id", "etl-42"])
    assert "the file is called b.py now, and was a.py\n" in said(capsys)


def test_a_users_copy_that_differs_is_not_a_holders(answers: Answers, tmp_path: Path, capsys: Capture) -> None:
    """A user would wait for a holder to repair a directory that no holder knows."""
    (tmp_path / "b").write_text("x")
    meta = make_metafile(tmp_path / "b")
    answers["GET /v1/bundles/etl-42/metafile"] = meta.raw
    answers["digest"] = meta.digest
    (tmp_path / "b").write_text("y")

    assert 7 == main(["bundle", "verify", "etl-42", "b"])
    told = said(capsys)
    assert "error[content_differs]: b is not bundle 'etl-42': b differs\n" in told
    assert "holder" not in told
    assert "torrentdist download etl-42 b --force" in told


def test_a_label_that_no_host_has_is_named(answers: Answers, capsys: Capture) -> None:
    """A typing error in a label would read as if a supervisor did not exist."""
    fleet = FleetView(id=BUNDLE.id, digest=BUNDLE.digest, size=1, hosts=[])
    answers["POST /v1/bundles/etl-42/distribute"] = fleet

    assert 3 == main(["bundle", "distribute", "etl-42", "--label", "rack=9"])
    assert "no supervisor has the label rack=9\n" in said(capsys)


def test_a_users_mistake_has_no_traceback(answers: Answers, capsys: Capture) -> None:
    """With -v a wrong name would look like a bug of ours."""
    assert 3 == main(["-v", "bundle", "show", "nope"])
    assert "Traceback" not in said(capsys)


def test_a_bug_has_a_traceback(monkeypatch: pytest.MonkeyPatch, answers: Answers, capsys: Capture) -> None:
    """A bug could not be reported."""
    answers["GET /v1/bundles/x"] = TorrentdistError("internal", detail="oops")
    monkeypatch.setenv("TORRENTDIST_CLIENT_DEADLINE_SECS", "0.2")

    assert 1 == main(["-v", "bundle", "show", "x"])
    assert "Traceback" in said(capsys)


def test_a_url_with_a_path_is_no_masters(capsys: Capture) -> None:
    """`http://host/v1` would be asked for /v1/v1/cluster, which "does not exist"."""
    assert 2 == main(["--masters", "http://127.0.0.1:7060/v1", "cluster"])
    assert "without a path" in said(capsys)


def test_a_gateway_is_recognized(answers: Answers, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """The URL of a supervisor would give "/v1/cluster does not exist: check the name"."""
    answers["GET /v1/cluster"] = TorrentdistError("not_found", what="/v1/cluster")
    monkeypatch.setenv("TORRENTDIST_CLIENT_DEADLINE_SECS", "0.2")

    assert 5 == main(["cluster"])
    assert "it is no master (perhaps a supervisor's gateway)" in said(capsys)


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [
        (["dev", "up"], "kazoo,starlette,uvicorn,httpx,fsspec", "torrentdist[server]"),
        (["report", "events"], "pyspark,pyarrow", "torrentdist[spark]"),
    ],
)
def test_a_plain_install_names_the_extra(tmp_path: Path, command: list[str], missing: str, extra: str) -> None:
    """If this fails, a user of the plain client reads that a missing extra is a bug of ours."""
    ran = subprocess.run(
        [sys.executable, "-c", NO_EXTRAS, missing, *command],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PATH": ""},
    )

    assert 2 == ran.returncode, ran.stderr
    assert "error[missing_dependency]" in ran.stderr
    assert f"pip install '{extra}'" in ran.stderr


@pytest.mark.parametrize(("state", "code"), [(HostState.WAITING, 8), (HostState.DONE, 0)])
def test_a_full_dest_is_said_before_anything_is_fetched(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: HostState, code: int
) -> None:
    """The supervisor would fetch everything, and only then the copy would fail; a bundle that is
    already there may need no room."""
    home = tmp_path / "object" / "content"
    home.mkdir(parents=True)
    (home / "data").write_bytes(b"x" * 5000)
    meta = make_metafile(home)
    (home.parent / "metafile").write_bytes(meta.raw)
    view = HostBundleView(id=BUNDLE.id, digest=meta.digest, state=state, path=str(home))
    answers["GET /v1/bundles/etl-42"] = msgspec.structs.replace(BUNDLE, digest=meta.digest)
    answers["GET /v1/bundles/etl-42/metafile"] = meta.raw
    answers["digest"] = meta.digest
    answers["GET /livez"] = "ok"
    answers["GET /v1/host/bundles/etl-42"] = view
    if state is HostState.DONE:
        answers["POST /v1/host/bundles/etl-42/fetch"] = view
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))

    assert code == main(["download", "etl-42", "new/dest"])
    assert (code == 0) == (tmp_path / "new").exists()
