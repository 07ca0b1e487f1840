"""Addresses of Spark masters, and the error when nothing listens there."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from torrentdist.model.errors import TorrentdistError
from torrentdist.spark.spark_masters import addresses, require_master
from torrentdist.spark.spark_session import configured
from torrentdist_cli.main import main


@pytest.fixture
def nowhere() -> int:
    """Returns a port at which no process listens."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("spark://a:7077,b:7078", [("a", 7077), ("b", 7078)]),
        ("spark://[::1]:7077", [("::1", 7077)]),
        ("k8s://https://api.example:6443", [("api.example", 6443)]),
        ("k8s://http://api.example", [("api.example", 80)]),
        ("k8s://api.example", [("api.example", 443)]),
        ("spark://a", []),
        ("spark://a:port", []),
        *((name, []) for name in ("local", "local[2]", "yarn", "")),
    ],
)
def test_a_master_says_where_it_is(master: str, expected: list[tuple[str, int]]) -> None:
    """A running master would be refused, or a missing one waited for."""
    assert expected == addresses(master)


def test_one_master_of_several_is_enough(nowhere: int) -> None:
    """A standalone cluster whose first master is down would count as down."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        require_master(f"spark://127.0.0.1:{nowhere},127.0.0.1:{sock.getsockname()[1]}")

        with pytest.raises(TorrentdistError) as caught:
            require_master(f"spark://127.0.0.1:{nowhere}")

    assert "spark_unreachable" == caught.value.code


@pytest.mark.parametrize("configured", [False, True])
def test_a_report_does_not_wait_for_a_master_that_is_dead(
    nowhere: int,
    configured: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The user would wait for Spark's own timeout for a minute, and then see a stack trace."""
    master = f"spark://127.0.0.1:{nowhere}"
    if configured:
        (tmp_path / "spark-defaults.conf").write_text(f"# mine\nspark.master {master}\n")
        monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    events = tmp_path / "events"
    events.mkdir()
    (events / "events.jsonl").write_text("{}\n")
    code = main(
        ["report", str(events), "--out", str(tmp_path / "out"), *([] if configured else ["--spark-master", master])]
    )

    said = capsys.readouterr().err
    assert 5 == code
    assert f"error[spark_unreachable]: no Spark master answers at {master}: 127.0.0.1:{nowhere}: " in said
    assert "hint: " in said


def test_a_file_beside_the_user_configures_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a report that is made in somebody else's directory runs on their master, with
    their options for the JVM."""
    (tmp_path / "spark-defaults.conf").write_text("spark.master spark://somewhere:7077\n")
    monkeypatch.chdir(tmp_path)
    for name in ("SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    beside = configured("spark.master")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))

    assert ("", "spark://somewhere:7077") == (beside, configured("spark.master"))
