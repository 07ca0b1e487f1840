"""docker/ and docs/deployment.md without running them: linters, and whether they agree with each
other."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from deployment_site import COMPOSE, DOCKER, PAGE, ROOT, SERVICES, in_container, instructions, shell_blocks

from torrentdist.bundle import file_tree, metafile, safe_paths
from torrentdist.cluster.rebalance import group_records
from torrentdist.cluster.session import znode_operations
from torrentdist.launcher.launcher_server import arguments_of
from torrentdist.model import ids
from torrentdist.model.configuration.settings import combine, environ_layer, toml_layer
from torrentdist_cli.main import cli

OPERATIONS = (ROOT / "docs/operations.md").read_text()
UNITS = (
    "torrentdist-launcher.service",
    "torrentdist-master.service",
    "torrentdist-supervisor.service",
    "torrentdist-supervisor.socket",
)
LAUNCHER = UNITS[0]


def parses(words: list[str]) -> None:
    """Parses the words as a command of ours. Raises if they are wrong."""
    group: click.Command = cli
    while isinstance(group, click.Group) and not words[0].startswith("-"):
        found = group.get_command(click.Context(group), words[0])
        assert found is not None, words
        group, words = found, words[1:]
    group.make_context("torrentdist", list(words), obj=None)


def test_the_dockerfile_passes_its_linter() -> None:
    """Operators would find the mistakes that hadolint knows."""
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if program is None:
        pytest.skip("there is no hadolint for this platform")
    run = subprocess.run([program, str(DOCKER / "Dockerfile")], capture_output=True, text=True, timeout=60, check=False)

    assert ("", 0) == (run.stdout, run.returncode)


def test_the_image_runs_as_a_user_that_it_makes_and_who_owns_what_is_written() -> None:
    """As root, a hole in a daemon is one in the host; as a user that owns nothing, no daemon
    starts."""
    image = instructions()
    uid, gid = image["USER"][-1].split(":")
    made = " ".join(image["RUN"])

    assert uid.isdigit()
    assert int(uid) > 0
    assert f"useradd --system --uid {uid} --gid {gid}" in made
    assert f"--owner={uid} --group={gid}" in made
    assert f"chown -R {uid}:{gid} secrets/token" in (DOCKER / "compose" / "make-secrets").read_text()
    mounts = [
        str(m).split(":")[1] for s in SERVICES.values() if s["image"] == "torrentdist" for m in s.get("volumes", [])
    ]
    own = [mount for mount in mounts if mount.startswith("/var/lib/torrentdist")]
    assert [] == [mount for mount in own if mount not in made]


def test_everything_that_is_copied_into_the_image_is_there_and_not_ignored() -> None:
    """A build would fail, or the image lack what it needs."""
    copied = [word for line in instructions()["COPY"] for word in line.split()[:-1]]
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]

    assert [] == [path for path in copied if not (ROOT / path).exists()]
    assert [] == [path for path in copied if path not in let_in]


@pytest.mark.parametrize("service", [name for name, spec in SERVICES.items() if spec["image"] == "torrentdist"])
def test_a_service_gives_commands_and_settings_that_exist(service: str) -> None:
    """A container with a misspelt option or variable restarts for ever."""
    spec = SERVICES[service]
    environ = environ_layer(spec.get("environment", {}))
    files = [m.split(":")[0] for m in spec.get("volumes", []) if m.partition(":")[0].endswith(".toml")]
    layers = [toml_layer(tomllib.loads((DOCKER / "compose" / file).read_text()), file) for file in files]
    combine([*layers, environ])
    if "entrypoint" not in spec:
        parses(spec["command"])

    assert set(spec.get("secrets", [])) <= set(COMPOSE["secrets"])
    assert {m.split(":")[0] for m in spec.get("volumes", []) if not m.startswith("./")} <= set(COMPOSE["volumes"])


def test_what_can_run_code_is_kept_small() -> None:
    """A container that may become root, or has unneeded capabilities, is a way into the host."""
    ours = [spec for spec in SERVICES.values() if spec["image"] == "torrentdist"]

    assert [["ALL"]] * len(ours) == [spec["cap_drop"] for spec in ours]
    assert [["no-new-privileges:true"]] * len(ours) == [spec["security_opt"] for spec in ours]
    assert [] == [
        port for spec in SERVICES.values() for port in spec.get("ports", []) if not port.startswith("127.0.0.1:")
    ]


def test_units_are_what_systemd_understands(tmp_path: Path) -> None:
    """systemd ignores what it does not know: a misspelt hardening option has no effect."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("there is no systemd-analyze")
    for name in UNITS:
        text = (
            (DOCKER / "systemd" / name).read_text().replace("/opt/torrentdist/bin/torrentdist-launcher", sys.executable)
        )
        text = text.replace("/opt/torrentdist/bin/torrentdist", sys.executable)
        (tmp_path / name).write_text(text)
    paths = [str(tmp_path / name) for name in UNITS]
    run = subprocess.run(
        [program, "verify", "--man=no", *paths], capture_output=True, text=True, timeout=60, check=False
    )

    assert ("", 0) == (run.stderr, run.returncode)


@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".service") and name != LAUNCHER])
def test_a_unit_starts_a_command_that_exists(name: str) -> None:
    """A unit with a misspelt command fails at every boot."""
    (command,) = re.findall(r"(?m)^ExecStart=(.+)$", (DOCKER / "systemd" / name).read_text())
    program, *words = shlex.split(command)
    config = words[words.index("--config") + 1]

    parses(words)
    assert f"# {config}" in PAGE
    assert program.removesuffix("/bin/torrentdist") in PAGE


def test_the_launcher_listens_where_the_supervisor_asks_it() -> None:
    """No worker would start on a host that was set up as the page says."""
    (command,) = re.findall(r"(?m)^ExecStart=(.+)$", (DOCKER / "systemd" / LAUNCHER).read_text())
    program, *words = shlex.split(command)
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    given = vars(arguments_of(words))

    assert program.rpartition("/")[2] in scripts
    assert f'launcher = "{given["socket"]}"' in PAGE
    assert f"RuntimeDirectory={Path(given['socket']).parent.name}\n" in (DOCKER / "systemd" / LAUNCHER).read_text()
    assert f"User={given['user']}\n" in (DOCKER / "systemd/torrentdist-supervisor.service").read_text()


def test_every_command_and_setting_of_the_page_exists() -> None:
    """If this fails, a user who types what the page says is told that there is no such option."""
    lines = [line for block in shell_blocks() for line in block.splitlines()]
    typed = [found[1] for line in lines if (found := re.search(r"^(?:.*[ /])?torrentdist ([a-z]+(?: .*)?)$", line))]
    commands = [shlex.split(words) for words in typed]
    for line in lines:
        if line.startswith("docker compose run ") and "--entrypoint" not in line:
            service, words = in_container(line)
            commands.append(words or SERVICES[service]["command"])
    for words in commands:
        parses(words)
    configurations = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    for text in configurations:
        combine([toml_layer(tomllib.loads(text), "docs/deployment.md")])

    assert 16 == len(commands)
    assert 3 == len(configurations)


@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".service")])
def test_the_document_that_a_unit_names_is_installed(name: str) -> None:
    """`systemctl status` would send an operator to a file that is not there."""
    (named,) = re.findall(r"(?m)^Documentation=file:(.+)$", (DOCKER / "systemd" / name).read_text())
    folder, _, file = named.rpartition("/")

    assert f"--target-directory={folder} docs/*.md" in PAGE
    assert (ROOT / "docs" / file).is_file()


def test_nothing_is_installed_from_an_index_that_is_not_ours() -> None:
    """Anyone could publish a package of that name, and would control every host."""
    installs = [line for line in PAGE.splitlines() if "pip install" in line]

    assert installs
    assert [] == [line for line in installs if "dist/torrentdist-" not in line]


@pytest.mark.parametrize("page", [PAGE, OPERATIONS])
def test_an_example_of_a_supervisor_has_what_a_closed_cluster_asks_for(page: str) -> None:
    """A supervisor with the page's example could not talk to ZooKeeper or to a master, and would
    try for ever."""
    blocks = [tomllib.loads(text) for text in re.findall(r"(?s)```toml\n(.*?)```", page)]
    (example,) = [block for block in blocks if "supervisor" in block]
    shared = next((block for block in blocks if {"client", "zookeeper"} == set(block)), {})
    config = {name: {**shared.get(name, {}), **example.get(name, {})} for name in (*shared, *example)}

    has_certificate = config.get("tls", {}).get("mode") == "mutual"
    assert has_certificate or config["client"]["token_file"] == config["api"]["token_file"]
    assert config["zookeeper"]["auth_file"]
    assert config["zookeeper"]["servers"]
    assert config["supervisor"]["port"] == 7072
    assert "| 7072 | supervisors" in PAGE


@pytest.mark.parametrize(
    "limit",
    [
        safe_paths.MAX_NAME_BYTES, safe_paths.MAX_PATH_BYTES, safe_paths.MAX_DEPTH, safe_paths.MAX_TARGET_BYTES,
        safe_paths.MAX_LINK_HOPS,
        safe_paths.MAX_ENTRIES, safe_paths.MAX_ALL_PATHS_BYTES, file_tree.MAX_PIECES, metafile.MAX_METAFILE_BYTES,
        ids.MAX_ID_LENGTH, znode_operations.MAX_REQUEST_BYTES, group_records.MAX_RESOURCES,
    ],
)  # fmt: skip
def test_every_limit_stands_in_the_page_that_the_errors_name(limit: int) -> None:
    """A user whose bundle is refused would find no page with the limits."""
    (table,) = re.findall(r"(?s)## Limits\n(.*?)\n## ", OPERATIONS)

    assert re.search(rf"\b{limit:,}\b", table)
