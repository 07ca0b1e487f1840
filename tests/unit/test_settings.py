"""Reading the configuration: which source wins, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from torrentdist.model.configuration.config import Config, TracesConfig
from torrentdist.model.configuration.fixed_settings import FIXED, warnings
from torrentdist.model.configuration.settings import (
    DEFAULT_ORIGIN,
    KEYS,
    Loaded,
    combine,
    environ_layer,
    load,
    parse_text,
    read_secret,
    toml_layer,
    variable_of,
)
from torrentdist.model.configuration.settings_rules import RULES, problems_of
from torrentdist.model.errors import TorrentdistError


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """The folders and the file that may hold a configuration, all empty."""
    folders = {name: tmp_path / name for name in ("system", "user", "cwd")}
    for folder in folders.values():
        folder.mkdir()
    return folders


def load_from(places: dict[str, Path], **options: object) -> Loaded:
    environ = {"XDG_CONFIG_HOME": str(places["user"]), **options.pop("environ", {})}  # type: ignore[dict-item]
    return load(environ=environ, cwd=places["cwd"], system_dir=places["system"], **options)  # type: ignore[arg-type]


def test_each_place_is_laid_over_the_one_before(places: dict[str, Path], tmp_path: Path) -> None:
    """A source of lower rank would make a flag or a variable useless."""
    (places["user"] / "torrentdist").mkdir()
    files = [
        places["system"] / "torrentdist.toml",
        places["user"] / "torrentdist" / "torrentdist.toml",
        places["cwd"] / "torrentdist.toml",
        tmp_path / "named.toml",
    ]
    keys = ["api.port", "supervisor.slots", "swarm.port", "store.limit_bytes", "replication.min_count", "log.level"]
    for rank, file in enumerate(files, start=1):
        file.write_text("".join(f'"{k.split(".")[0]}".{k.split(".")[1]} = {rank}\n' for k in keys[rank - 1 : 5]))
    loaded = load_from(
        places,
        config_file=files[3],
        environ={"TORRENTDIST_REPLICATION_MIN_COUNT": "5", "TORRENTDIST_LOG_LEVEL": "error"},
        flags={"log.level": "debug"},
    )

    values = [
        loaded.config.api.port,
        loaded.config.supervisor.slots,
        loaded.config.swarm.port,
        loaded.config.store.limit_bytes,
        loaded.config.replication.min_count,
        loaded.config.log.level,
    ]
    expected = [1, 2, 3, 4, 5, "debug"]
    assert expected == values
    origins = [*map(str, files), "TORRENTDIST_REPLICATION_MIN_COUNT", "command line"]
    assert origins == [loaded.origins[key] for key in keys]


@pytest.mark.parametrize(
    ("daemon", "expected"), [("", 7071), ('[supervisor]\nid = "host-17"\n', 0), ('[master]\nid = "m"\n', 0)]
)
def test_a_command_takes_no_port_of_a_daemon(
    places: dict[str, Path], tmp_path: Path, daemon: str, expected: int
) -> None:
    """`upload --config` with the daemon's own file would find its port in use, or keep the daemon
    from starting."""
    (tmp_path / "named.toml").write_text(f"{daemon}[swarm]\nport = 7071\nupload_limit = 9\n")
    swarm = load_from(places, config_file=tmp_path / "named.toml").config.client_swarm

    assert (expected, 9) == (swarm.port, swarm.upload_limit)


def test_without_any_file_the_defaults_hold(places: dict[str, Path]) -> None:
    """A machine without a configuration file must be able to use the command line."""
    loaded = load_from(places)

    assert Config() == loaded.config
    assert {"default"} == set(loaded.origins.values())


def test_the_defaults_keep_their_own_rules() -> None:
    """A default that the validation refuses makes every run fail."""
    assert not list(problems_of(Config()))


def test_every_rule_belongs_to_a_key() -> None:
    """A rule for a renamed key would check nothing."""
    assert set(RULES) <= set(KEYS)


def test_all_problems_of_all_places_are_named_at_once(places: dict[str, Path], tmp_path: Path) -> None:
    """A user with ten mistakes in a file would need ten runs to find them."""
    named = tmp_path / "named.toml"
    named.write_text('[api]\nprot = 1\nport = "x"\n[replication]\nmax_wait_secs = -5\n[clinet]\n')
    with pytest.raises(TorrentdistError) as caught:
        load_from(places, config_file=named, environ={"TORRENTDIST_LOG_FORMAT": "xml", "TORRENTDIST_API_PROT": "1"})

    lines = [
        f"{named}: unknown key 'api.prot', did you mean 'api.port'?",
        f"{named}: api.port: expected an integer, got the string 'x'",
        f"{named}: unknown section 'clinet', did you mean 'client'?",
        "TORRENTDIST_API_PROT: unknown variable, did you mean 'TORRENTDIST_API_PORT'?",
        f"{named}: replication.max_wait_secs must be a number of seconds, or -1 for no limit, not -5.0",
        "TORRENTDIST_LOG_FORMAT: log.format must be one of auto, console, json, not 'xml'",
    ]
    assert lines == caught.value.message.split("\n")
    assert caught.value.exit_code == 2


def test_a_variable_names_the_configuration_file(places: dict[str, Path], tmp_path: Path) -> None:
    """A program that nobody can give --config could not be given a file."""
    files = {name: tmp_path / f"{name}.toml" for name in ("variable", "flag")}
    for file in files.values():
        file.write_text(f'[log]\nlevel = "{"debug" if file.stem == "flag" else "error"}"\n')
    environ = {"TORRENTDIST_CONFIG": str(files["variable"])}

    assert "error" == load_from(places, environ=environ).config.log.level
    assert "debug" == load_from(places, environ=environ, config_file=files["flag"]).config.log.level


def test_a_missing_file_of_the_variable_is_an_error(places: dict[str, Path], tmp_path: Path) -> None:
    """A mistyped path would silently mean the defaults."""
    with pytest.raises(TorrentdistError) as caught:
        load_from(places, environ={"TORRENTDIST_CONFIG": str(tmp_path / "none.toml")})

    assert f"TORRENTDIST_CONFIG: there is no file {tmp_path}/none.toml" == caught.value.message


def test_a_variable_that_resembles_none_gets_no_suggestion(places: dict[str, Path]) -> None:
    """The advice would lead to a setting of quite another thing."""
    with pytest.raises(TorrentdistError) as caught:
        load_from(places, environ={"TORRENTDIST_CONFIGURE": "x"})

    assert "TORRENTDIST_CONFIGURE: unknown variable" == caught.value.message


def test_a_key_without_its_section_is_led_home() -> None:
    """The commonest mistake in a TOML file needs the key's full name as the answer."""
    layer = toml_layer({"masters": ["http://a:1"]}, "t.toml")

    [problem] = layer.problems
    assert problem.detail == "unknown key 'masters', did you mean 'client.masters'?"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("api.port", True),
        ("api.port", 1.5),
        ("zookeeper.sasl", 1),
        ("client.masters", "http://a:1"),
        ("client.masters", [1]),
        ("supervisor.labels", {"a": 1}),
        ("log.level", 3),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(key: str, value: object) -> None:
    """A value that is converted to fit would do something that nobody asked for."""
    section, _, name = key.partition(".")
    layer = toml_layer({section: {name: value}}, "t.toml")

    assert not layer.values
    assert layer.problems[0].detail.startswith(f"{key}: expected ")


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("client.masters", "http://a:1, http://b:2,", ["http://a:1", "http://b:2"]),
        ("zookeeper.sasl", "Yes", True),
        ("zookeeper.sasl", "0", False),
        ("api.port", " 7 ", 7),
        ("replication.max_wait_secs", "-1", -1.0),
        ("supervisor.labels", "zone=a, rack=7=x", {"zone": "a", "rack": "7=x"}),
        ("codedistributor.options", '{"endpoint": {"port": 1}}', {"endpoint": {"port": 1}}),
        ("log.level", "debug", "debug"),
    ],
)
def test_a_variable_is_read_as_its_key_s_type(key: str, text: str, value: object) -> None:
    """A text where a number is expected would fail far from where it was set."""
    layer = environ_layer({variable_of(key): text})

    assert {key: value} == layer.values


@pytest.mark.parametrize(
    ("key", "text"),
    [("api.port", "7.5"), ("zookeeper.sasl", "maybe"), ("supervisor.labels", "zone"), ("swarm.fetching_secs", "x")],
)
def test_a_variable_of_the_wrong_form_is_refused(key: str, text: str) -> None:
    """A mistyped variable would silently leave the default in force."""
    with pytest.raises(ValueError, match="expected") as caught:
        parse_text(key, text)

    assert str(caught.value).startswith(key)


def test_the_short_variable_gives_way_to_the_full_one() -> None:
    """The result would depend on the order of two variables in the environment."""
    layer = environ_layer({"TORRENTDIST_MASTERS": "http://a:1", "TORRENTDIST_CLIENT_MASTERS": "http://b:2"})

    assert layer.values == {"client.masters": ["http://b:2"]}


def test_variables_that_kubernetes_sets_are_passed_over() -> None:
    """No pod could start in a cluster that has a service called torrentdist."""
    layer = environ_layer(
        {
            "TORRENTDIST_SERVICE_HOST": "10.0.0.1",
            "TORRENTDIST_SERVICE_PORT_HTTP": "7060",
            "TORRENTDIST_PORT": "tcp://10.0.0.1:7060",
            "TORRENTDIST_PORT_7060_TCP_ADDR": "10.0.0.1",
            "TORRENTDIST_API_PORT": "tcp://10.0.0.1:7060",
        }
    )

    assert (layer.values, layer.problems) == ({}, ())


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("API_PORT", "65536"),
        ("API_PORT", "-1"),
        ("API_LISTEN", ""),
        ("STORE_LIMIT_BYTES", "-1"),
        ("REPLICATION_MAX_WAIT_SECS", "-0.5"),
        ("REPLICATION_MAX_WAIT_SECS", "nan"),
        ("REPLICATION_MIN_COUNT", "0"),
        ("CLIENT_MASTERS", ""),
        ("CLIENT_MASTERS", "a:7060"),
        ("CLIENT_MASTERS", "http://a:99999"),
        ("CLIENT_SUPERVISOR", "127.0.0.1:7070"),
        ("CLIENT_DEADLINE_SECS", "inf"),
        ("ZOOKEEPER_SERVERS", "a"),
        ("ZOOKEEPER_CHROOT", "torrentdist"),
        ("ZOOKEEPER_SASL", "true"),
        ("ZOOKEEPER_TLS_CERT", "cert.pem"),
        ("MASTER_ID", "../m1"),
        ("CODEDISTRIBUTOR_CLASS", "package module"),
        ("LOG_LEVEL", "loud"),
        ("SUPERVISOR_SLOTS", "10001"),  # no master would read the host's registration
        ("SUPERVISOR_LABELS", f"rack={'r' * 301}"),
        ("SUPERVISOR_LABELS", ",".join(f"l{number}=x" for number in range(101))),
        ("TRACES_ENDPOINT", "collector:4318"),
        ("TRACES_ENDPOINT", "http://me:secret@collector:4318"),
        ("TRACES_ENDPOINT", "http://[collector"),
        ("TRACES_SAMPLE", "1.5"),
        ("TRACES_SAMPLE", "nan"),
    ],
)
def test_a_value_that_cannot_work_is_refused_before_anything_starts(
    places: dict[str, Path], variable: str, text: str
) -> None:
    """A daemon that starts with such a value fails later, halfway, and less clearly."""
    with pytest.raises(TorrentdistError) as caught:
        load_from(places, environ={f"TORRENTDIST_{variable}": text})

    assert caught.value.code == "config_invalid"
    assert caught.value.message.startswith(f"TORRENTDIST_{variable}: ")


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_any_share_of_the_traces_may_be_sent(share: float) -> None:
    """If this fails, who sends a tenth of the traces, or none, is told that this cannot work."""
    config = Config(traces=TracesConfig(sample=share))

    assert [] == [*problems_of(config)]


@pytest.mark.parametrize("text", ["[api\n", "[api]\nport = 1\nport = 2\n"])
def test_a_file_that_is_no_toml_is_named(places: dict[str, Path], text: str) -> None:
    """A reader would have to search five files."""
    (places["cwd"] / "torrentdist.toml").write_text(text)
    with pytest.raises(TorrentdistError) as caught:
        load_from(places)

    assert caught.value.message.startswith(f"{places['cwd'] / 'torrentdist.toml'}: is not valid TOML")


def test_a_named_file_that_is_missing_is_an_error(places: dict[str, Path], tmp_path: Path) -> None:
    """A mistyped --config would silently mean the defaults."""
    with pytest.raises(TorrentdistError) as caught:
        load_from(places, config_file=tmp_path / "nope.toml")

    assert f"{tmp_path / 'nope.toml'}: there is no such file" == caught.value.message


def test_a_secret_is_read_without_its_line_end(tmp_path: Path) -> None:
    """A token with a line end in it is a wrong token."""
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    path.chmod(0o600)

    assert read_secret(path) == "s3cret"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_secret_that_others_can_get_at_is_refused(tmp_path: Path, mode: int) -> None:
    """A secret that every user of the machine can read is none."""
    path = tmp_path / "token"
    path.write_text("s3cret\n")
    path.chmod(mode)
    with pytest.raises(TorrentdistError) as caught:
        read_secret(path)

    assert caught.value.code == "secret_invalid"
    assert f"chmod 600 {path}" in caught.value.hint
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n \n", b"\xff\xfe", b"x" * 70_000])
def test_a_file_that_holds_no_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    """An empty token would make every request without a token a valid one."""
    path = tmp_path / "token"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(TorrentdistError) as caught:
        read_secret(path)

    assert caught.value.code == "secret_invalid"


def test_a_secret_s_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    """A daemon without its token would be open to everyone."""
    with pytest.raises(TorrentdistError) as caught:
        read_secret(tmp_path / "nope")

    assert caught.value.code == "secret_invalid"


def test_a_setting_that_becomes_a_constant_is_honoured_and_named() -> None:
    """If this fails, an upgrade breaks a daemon without a message, or a warning names a key that
    nobody has set."""
    loaded = combine([toml_layer({"events": {"file_secs": 5.0, "rack": "a"}}, "a.toml")])

    expected = ["events.file_secs (a.toml) becomes a constant"]
    assert 5.0 == loaded.config.events.file_secs
    assert expected == [text.partition(":")[0] for text in warnings(loaded.origins, DEFAULT_ORIGIN)]


def test_every_constant_to_be_is_a_key() -> None:
    """If this fails, the list gives a reason for a setting that does not exist."""
    assert set(FIXED) <= set(KEYS)
