"""Lines of the log: JSON for programs, plain for people, and no secret in either."""

from __future__ import annotations

import json

import pytest

from torrentdist import log as logging_of_ours
from torrentdist.host.process.logs import configure_logs
from torrentdist.log import get_logger
from torrentdist.model.configuration.config import LogConfig

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging_of_ours, "_shown", logging_of_ours._shown)


def lines(capsys: Capture) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_a_line_has_its_fields_and_those_of_the_daemon(capsys: Capture) -> None:
    """A collector of logs could not tell which daemon said what."""
    configure_logs(LogConfig(format="json"), role="master", id="m-1")
    get_logger().info("bundle published", bundle="etl", size=3)
    (line,) = map(json.loads, lines(capsys))

    assert line.pop("timestamp").endswith("Z")
    assert {
        "level": "info",
        "event": "bundle published",
        "role": "master",
        "id": "m-1",
        "bundle": "etl",
        "size": 3,
    } == line


def test_a_secret_is_never_printed(capsys: Capture) -> None:
    """A token in a log could be used by everybody who reads logs; the name of its file is no
    secret."""
    configure_logs(LogConfig(format="json"))
    get_logger().warning("configured", api_token="abc", token_file="/etc/token")
    (line,) = map(json.loads, lines(capsys))

    assert ("***", "/etc/token") == (line["api_token"], line["token_file"])


def test_a_terminal_gets_no_control_characters(capsys: Capture) -> None:
    """A bundle's name could move the cursor of whoever reads the log."""
    configure_logs(LogConfig(format="console"))
    get_logger().info("arrived", path="a\x1b[2Jb")
    (line,) = lines(capsys)

    assert "path=a\\x1b[2Jb" in line


@pytest.mark.parametrize("format_", ["json", "console"])
def test_an_error_comes_with_its_traceback(capsys: Capture, format_: str) -> None:
    """Nobody could find the line of a bug."""
    configure_logs(LogConfig(format=format_))
    try:
        raise ZeroDivisionError("by us")
    except ZeroDivisionError:
        get_logger().exception("a loop failed")

    assert "ZeroDivisionError: by us" in capsys.readouterr().err


def test_lines_below_the_level_are_left_out(capsys: Capture) -> None:
    """Warnings would be lost among lines that the operator did not want."""
    configure_logs(LogConfig(format="json", level="warning"))
    get_logger().info("small")
    get_logger().warning("large")

    assert ["large"] == [json.loads(line)["event"] for line in lines(capsys)]


def test_a_program_that_configures_nothing_hears_warnings_alone(capsys: Capture) -> None:
    """A library that talks would spoil the output of its users' programs."""
    get_logger().info("small")
    get_logger().warning("large", why="room")

    assert ["warning: large why=room"] == lines(capsys)
