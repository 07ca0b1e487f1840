"""What the shell asks for: completion scripts, help topics, and progress for programs."""

from __future__ import annotations

import json

import pytest

from torrentdist.client.bundles.transfer_progress import TransferProgress, TransferStage
from torrentdist.model.errors import ERRORS
from torrentdist.model.ids import BundleId, Digest, SupervisorId
from torrentdist.model.wire.fleet_messages import FleetView, HostProgress, HostState
from torrentdist_cli.frame.command import ProgressStyle, Session
from torrentdist_cli.frame.progress_bar import as_json, lines_of
from torrentdist_cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(shell: str, capsys: Capture) -> None:
    """If this fails, `eval "$(torrentdist completion SHELL)"` breaks the start of a shell."""
    assert 0 == main(["completion", shell])
    assert "_TORRENTDIST_COMPLETE" in capsys.readouterr().out


def test_help_explains_every_exit_code(capsys: Capture) -> None:
    """If this fails, a script's author finds an exit code that nobody explains."""
    assert 0 == main(["help", "exit-codes"])
    told = {int(line.split()[0]) for line in capsys.readouterr().out.splitlines()}

    assert {kind.exit_code for kind in ERRORS.values()} <= told


@pytest.mark.parametrize(("topic", "words"), [("config", "./torrentdist.toml"), ("formats", "-o jsonl")])
def test_help_explains_topics(topic: str, words: str, capsys: Capture) -> None:
    """If this fails, the user has to find the page on the web."""
    assert 0 == main(["help", topic])
    assert words in capsys.readouterr().out


def test_help_of_a_command_is_its_help_page(capsys: Capture) -> None:
    """If this fails, `help` and `--help` say different things."""
    main(["bundle", "show", "--help"])
    expected = capsys.readouterr().out
    main(["help", "bundle", "show"])

    assert expected == capsys.readouterr().out


def test_an_unknown_topic_is_refused_with_the_topics(capsys: Capture) -> None:
    """If this fails, a typing error shows nothing."""
    assert 2 == main(["help", "exit-cods"])
    assert "exit-codes, config, formats" in capsys.readouterr().err


def test_quiet_shows_no_progress_unless_it_is_asked_for() -> None:
    """If this fails, `-q --progress json` is silent, or `-q` is not."""
    assert ProgressStyle.NONE is Session(quiet=True).progress_style
    assert ProgressStyle.JSON is Session(quiet=True, progress=ProgressStyle.JSON).progress_style
    assert ProgressStyle.AUTO is Session().progress_style


def test_a_terminal_gets_lines_where_plain_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a log that is recorded from a terminal is full of control characters."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)

    assert lines_of(ProgressStyle.AUTO, str) is None
    assert lines_of(ProgressStyle.PLAIN, str) is not None


def test_progress_as_json_is_one_object_in_a_line() -> None:
    """If this fails, a program cannot read the progress."""
    transfer = TransferProgress(phase=TransferStage.FETCHING, done=3, size=10, rate=2.0)
    done = HostProgress(supervisor=SupervisorId("h1"), state=HostState.DONE, done=10, size=10)
    half = HostProgress(supervisor=SupervisorId("h2"), state=HostState.FETCHING, done=5, size=10, rate=2.0)
    fleet = FleetView(id=BundleId("b"), digest=Digest("0" * 64), size=10, hosts=[done, half])

    assert {"phase": "fetching", "done": 3, "size": 10}.items() <= json.loads(as_json(transfer)).items()
    expected = {"phase": "fetching", "done": 15, "size": 20, "rate": 2.0, "hosts": 2, "hosts_done": 1}
    assert expected == json.loads(as_json(fleet))
