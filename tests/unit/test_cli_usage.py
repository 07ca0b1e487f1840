"""The command line without a cluster: help, mistakes, configuration, masters that are away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import pytest

from torrentdist.model.errors import ERRORS
from torrentdist_cli.frame.command import Group
from torrentdist_cli.main import cli, main

HEAVY = (
    "asyncio",
    "httpx",
    "opentelemetry",
    "rich",
    "libtorrent",
    "msgspec",
    "tomllib",
    "torrentdist.model.configuration.settings",
    "torrentdist.client",
)
NOBODY = "http://127.0.0.1:1"
Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes all configuration but the test's own."""
    for name in [name for name in os.environ if name.startswith(("TORRENTDIST_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TORRENTDIST_CLIENT_DEADLINE_SECS", "1")
    monkeypatch.setenv("TORRENTDIST_CLIENT_SUPERVISOR", NOBODY)
    monkeypatch.chdir(tmp_path)


def every_command(group: click.Group = cli, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        found.append((*path, name))
        if isinstance(command, click.Group):
            found += every_command(command, (*path, name))
    return found


COMMANDS = every_command()


def python(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=60)


def test_help_imports_nothing_that_it_does_not_need() -> None:
    """Each import costs a part of the quarter of a second within which help has to appear."""
    run = python(
        "import sys; from torrentdist_cli.main import main; main(['--help']);"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )

    assert run.stderr.strip() == "[]"
    assert "Commands:" in run.stdout


def test_a_list_imports_only_what_asks_for_it_and_shows_it() -> None:
    """`bundle ls` takes 0.2 s with Python's own start, and every import adds to it."""
    run = python(
        "import sys, torrentdist_cli.bundles.bundle_commands, torrentdist.client.masters.master_client as client;"
        "needless = ('tempfile', 'secrets', 'torrentdist.security', 'torrentdist.bundle', 'click.shell_completion');"
        "print(client.__name__, [name for name in needless if name in sys.modules])"
    )

    assert ("torrentdist.client.masters.master_client []\n", "") == (run.stdout, run.stderr)


def test_a_command_that_asks_the_masters_draws_nothing_before_it_has_to() -> None:
    """Each import adds to the start of a command: where sixteen commands start at once, all pay for
    it."""
    run = python(
        "import sys, torrentdist_cli.bundles.download_command, torrentdist_cli.bundles.distribute_command;"
        "print([name for name in ('rich', 'pygments', 'httpx', 'h11', 'email') if name in sys.modules])"
    )

    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_help_and_the_shared_options(command: tuple[str, ...], capsys: Capture) -> None:
    """An option that some command lacks breaks the script that relies on it everywhere."""
    code = main([*command, "--help"])

    text = capsys.readouterr().out
    assert code == 0
    assert all(option in text for option in ("--output", "--quiet", "--verbose", "--config", "--masters"))


def test_the_help_of_a_group_says_of_each_command_what_the_command_says() -> None:
    """The line about a command is written in two places; this test keeps them equal."""
    groups = [cli, *(cli.get_command(click.Context(cli), name) for name in cli.list_commands(click.Context(cli)))]
    differing = [
        name
        for group in groups
        if isinstance(group, Group)
        for name, lazy in group.lazy.items()
        for command in [group.get_command(click.Context(group), name)]
        if command is None or (command.help or "").split("\n")[0] != lazy.short_help
    ]

    assert not differing


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["uplaod", "x"], "there is no command 'uplaod', did you mean 'upload'?"),
        (["bundle", "distribut", "x"], "there is no command 'distribut', did you mean 'distribute'?"),
        (["--mastres", "x", "cluster"], "'--mastres'"),
        (["upload"], "PATH"),
        (["upload", ".", "--min-replicas", "-1"], "--min-replicas"),
        (["upload", ".", "--timeout", "soon"], "'soon': give a duration as 90, 90s, 5m, 1h30m or 7d"),
        (["bundle", "distribute", "a", "--wait", "50"], "'50': give a share as 100%, 50%, 0.5 or 0"),
        (["bundle", "distribute", "a", "--label", "zone"], "'zone' is not of the form K=V"),
        (["bundle", "distribute", "a", "--label", "z=1", "--supervisors", "s1"], "exclude each other"),
        (["-o", "xml", "cluster"], "'xml'"),
        (["config", "show", "api.prot"], "there is no key 'api.prot'"),
        (["master"], "a daemon is started with --config FILE"),
        (["supervisor"], "a daemon is started with --config FILE"),
    ],
)
def test_a_mistake_is_named_and_exits_2(args: list[str], sentence: str, capsys: Capture) -> None:
    """A user who mistypes a command needs the right word, and a script the right code."""
    code = main(args)

    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("error[usage]: ")
    assert sentence in err
    assert "\nhint: " in err


@pytest.mark.parametrize("args", [[], ["bundle"], ["ha"]], ids=" ".join)
def test_a_group_alone_shows_its_help_as_a_mistake(args: list[str], capsys: Capture) -> None:
    """A script that forgot the command must not take the help page for data."""
    code = main(args)

    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert "Commands:" in err


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["bundle", "show", "../etc"], "invalid_id"),
        (["download", "a/b", "x"], "invalid_id"),
        (["bundle", "verify", "a", "nope"], "path_not_found"),
        (["upload", "nope"], "path_not_found"),
        (["--config", "nope.toml", "cluster"], "config_invalid"),
        (["master", "--config", "nope.toml"], "config_invalid"),
        (["cluster", "--masters", "nonsense"], "config_invalid"),
        (["bundle", "prune"], "supervisor_unreachable"),
        (["cluster"], "unreachable"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_every_failure_exits_with_the_code_of_its_error(args: list[str], code: str, capsys: Capture) -> None:
    """A script that can't tell a typing mistake from a cluster that is away retries the one and
    gives up the other."""
    exit_code = main([*(["--masters", NOBODY] if "--masters" not in args else []), *args])

    out, err = capsys.readouterr()
    assert (exit_code, out) == (ERRORS[code].exit_code, "")
    assert err.startswith(f"error[{code}]: ")
    assert "\nhint: " in err


def test_an_option_counts_before_and_after_the_command(capsys: Capture) -> None:
    """Scripts put the shared options first, people last; both must mean the same."""
    codes = [main(["-o", "json", "config", "show", "api"]), main(["config", "show", "api", "-o", "json"])]

    first, second = capsys.readouterr().out.split("}\n{")
    assert codes == [0, 0]
    assert f"{first}}}" == "{" + second.rstrip("\n")


def test_the_masters_flag_wins_over_the_variable(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag that is overruled sends a command to the wrong cluster."""
    monkeypatch.setenv("TORRENTDIST_MASTERS", "http://a:1")
    main(["config", "show", "client.masters", "--origin", "--masters", "http://b:2,http://c:3", "-o", "json"])

    shown = msgspec.json.decode(capsys.readouterr().out)
    assert shown == {"client.masters": {"value": ["http://b:2", "http://c:3"], "origin": "command line"}}


def test_quiet_prints_the_one_value(capsys: Capture) -> None:
    """`$(torrentdist ... -q)` must yield the bare value."""
    code = main(["config", "show", "api.port", "-q"])

    assert (code, *capsys.readouterr()) == (0, "7060\n", "")


def test_a_bug_of_ours_exits_1_and_offers_its_story(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A traceback tells a user nothing, and no traceback tells a developer nothing."""

    def explode() -> None:
        raise LookupError("no such thing")

    monkeypatch.setitem(cli.commands, "explode", click.Command("explode", callback=explode))
    codes = [main(["explode"]), main(["-v", "explode"])]

    err = capsys.readouterr().err
    assert codes == [1, 1]
    assert err.startswith("error[internal]: LookupError: no such thing\nhint: ")
    assert err.count("Traceback") == 1


def test_a_full_disk_under_the_output_exits_8(capsys: Capture) -> None:
    """Data that could not be written must not look like success."""
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "torrentdist_cli", "config", "show"], stdout=full, stderr=subprocess.PIPE, text=True
        )

    assert (run.returncode, run.stderr.partition("]")[0]) == (8, "error[disk_error")


def test_a_reader_that_leaves_is_no_error() -> None:
    """`torrentdist bundle ls | head -1` must not end in a traceback."""
    reading, writing = os.pipe()
    os.close(reading)
    run = subprocess.run(
        [sys.executable, "-m", "torrentdist_cli", "config", "show"], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)

    assert (run.returncode, run.stderr) == (141, "")


def test_a_daemon_without_its_packages_says_what_to_install(capsys: Capture, tmp_path: Path) -> None:
    """A plain client's installation has no server packages; an import error doesn't say how to get
    them."""
    (tmp_path / "m.toml").write_text("[master]\n")
    run = python(
        "import sys; sys.modules['starlette'] = sys.modules['kazoo'] = None\n"
        "from torrentdist_cli.main import main\n"
        "sys.exit(main(['master', '--config', sys.argv[1]]))",
        str(tmp_path / "m.toml"),
    )

    assert run.returncode == 2
    assert run.stderr.startswith("error[missing_dependency]: ")
    assert "pip install 'torrentdist[server]'" in run.stderr


def calls_with_an_empty_value(path: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Returns one call of a command for each of its text parameters, with that one empty."""
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    arguments = [param for param in command.params if isinstance(param, click.Argument)]
    calls = [(*path, *("" if other is param else "x" for other in arguments)) for param in arguments]
    options = [p for p in command.params if isinstance(p, click.Option) and not p.is_flag and not p.count]
    return calls + [(*path, *("x" for _ in arguments), param.opts[-1], "") for param in options]


@pytest.mark.case("G4")
@pytest.mark.parametrize("call", [call for path in COMMANDS for call in calls_with_an_empty_value(path)], ids=" ".join)
def test_an_empty_value_is_refused(call: tuple[str, ...], capsys: Capture) -> None:
    """A variable that was not set would mean the current directory, or every host."""
    code = main(list(call))

    assert (2, True) == (code, "it is empty" in capsys.readouterr().err)


@pytest.mark.case("G4")
@pytest.mark.parametrize("names", [",", "h1,", " "])
def test_an_empty_name_of_a_supervisor_is_refused(names: str, capsys: Capture) -> None:
    """A list of variables that were not set would mean every host."""
    assert main(["bundle", "distribute", "etl-1", "--supervisors", names]) == 2
    assert "invalid_id" in capsys.readouterr().err


@pytest.mark.parametrize("role", ["master", "supervisor"])
def test_a_daemon_is_not_started_from_a_file_that_is_not_about_it(
    role: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's configuration would start a daemon with a default id, in the default directory, on
    any ZooKeeper."""
    started: list[str] = []
    monkeypatch.setattr(
        "torrentdist_cli.hosts.daemon_start.entry_of", lambda module: lambda config, **options: started.append(module)
    )
    (tmp_path / "client.toml").write_text('[client]\nmasters = ["http://127.0.0.1:1"]\n')
    (tmp_path / "daemon.toml").write_text(f"[{role}]\n")
    refused = main(["--config", "client.toml", role])
    said = capsys.readouterr().err
    by_file = main([role, "--config", "daemon.toml"])
    monkeypatch.setenv(f"TORRENTDIST_{role.upper()}_ID", "a-1")
    by_variable = main([role, "--config", "client.toml"])

    assert (2, 0, 0) == (refused, by_file, by_variable)
    assert f"client.toml has no [{role}] section" in said
    assert [f"torrentdist.{role}.daemon"] * 2 == started
