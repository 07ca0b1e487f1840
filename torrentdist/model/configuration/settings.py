"""Reads the configuration: files, TORRENTDIST_* variables and flags, layered key by key.

Always: a Config from load() was checked as a whole, and every key has a known origin. All problems
of all layers are reported at once, each with its place. A key of a higher layer replaces the whole
value of a lower one, lists and tables included. Never: hold a secret; read_secret() reads one from
its file when needed. Longer than most files: layers, types and their complaints belong together.
"""

import os
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_origin

import msgspec

from torrentdist.model.configuration.config import Config
from torrentdist.model.configuration.settings_rules import Problem, problems_of, value_of
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.view import decode_json
from torrentdist.model.wording import toml_complaint

FILE_NAME = "torrentdist.toml"
SYSTEM_DIR = Path("/etc/torrentdist")
DEFAULT_ORIGIN = "default"
FLAG_ORIGIN = "command line"
PREFIX = "TORRENTDIST_"
CONFIG_FILE = PREFIX + "CONFIG"
"""Names a configuration file, as --config does, which goes before it."""
SHORT_VARIABLES: Mapping[str, str] = {"TORRENTDIST_MASTERS": "client.masters"}

_OF_WORKERS = (
    *("JOB", "WORKER", "WORKERS", "SLOT", "RUN", "FENCING", "BUNDLE", "DEPENDENCIES"),
    *("PEERS_FILE", "HEARTBEAT_FILE", "JOB_TOKEN_FILE", "GATEWAY"),
)
WORKER_VARIABLES = frozenset(PREFIX + name for name in _OF_WORKERS)
"""Variables that a supervisor sets for its workers. They are not configuration, but a worker may
run our programs."""
DEV_MARK = PREFIX + "DEV_MARK"
"""Set by `dev up` for its processes, so that `dev down` finds them. Not configuration."""
SLOW_CALLBACKS = PREFIX + "SLOW_CALLBACKS_SECS"
"""Makes a daemon log event loop callbacks that take this long. For tests; not configuration."""

# Kubernetes puts variables like these into every pod if a service is called torrentdist. They
# are not ours.
_SERVICE_LINK = r"_SERVICE_(HOST|PORT(_.*)?)$|_PORT_\d+_(TCP|UDP)(_.*)?$"
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
CLOSE = 0.75
"""How alike two names have to be for a suggestion; 1: equal."""
_MAX_SECRET_BYTES = 64 * 1024


class Loaded(NamedTuple):
    config: Config
    origins: Mapping[str, str]
    """The origin of each dotted key's value."""


class Layer(NamedTuple):
    """The dotted keys that one source sets, with values of the right type."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]
    problems: tuple[Problem, ...] = ()


def _known_keys() -> dict[str, Any]:
    return {
        f"{section.encode_name}.{field.encode_name}": field.type
        for section in msgspec.structs.fields(Config)
        for field in msgspec.structs.fields(section.type)
    }


KEYS: Mapping[str, Any] = _known_keys()
"""Every dotted key with its type."""
SECTIONS = frozenset(key.partition(".")[0] for key in KEYS)


def variable_of(key: str) -> str:
    """Returns the TORRENTDIST_* variable that sets this key."""
    return PREFIX + key.replace(".", "_").upper()


_VARIABLES: Mapping[str, str] = {**{variable_of(key): key for key in KEYS}, **SHORT_VARIABLES}


def load(
    *,
    config_file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    system_dir: Path = SYSTEM_DIR,
) -> Loaded:
    """Loads the configuration. `flags` maps dotted keys to values, typed or as text."""
    environ = os.environ if environ is None else environ
    if config_file is not None and not config_file.is_file():
        raise TorrentdistError("config_invalid", origin=str(config_file), detail="there is no such file")
    config_file = config_file or file_of_variable(environ)
    paths = [path for path in file_layers(environ, cwd or Path(), system_dir) if path.is_file()]
    layers = [_file_layer(path) for path in [*paths, *([config_file] if config_file else [])]]
    return combine([*layers, environ_layer(environ), flag_layer(flags or {})])


def file_of_variable(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Returns the configuration file that TORRENTDIST_CONFIG names, or None. Raises an error if it
    is not there."""
    name = environ.get(CONFIG_FILE, "")
    if name and not Path(name).is_file():
        raise TorrentdistError("config_invalid", origin=CONFIG_FILE, detail=f"there is no file {name}")
    return Path(name) if name else None


def file_layers(environ: Mapping[str, str], cwd: Path, system_dir: Path = SYSTEM_DIR) -> list[Path]:
    """Returns the files that are read by default, lowest first; they need not exist."""
    paths = [system_dir / FILE_NAME]
    if user_dir := environ.get("XDG_CONFIG_HOME") or (environ.get("HOME") and f"{environ['HOME']}/.config"):
        paths.append(Path(user_dir) / "torrentdist" / FILE_NAME)
    return [*paths, cwd / FILE_NAME]


def combine(layers: Iterable[Layer]) -> Loaded:
    """Combines layers over the defaults, lowest first. Raises one error that names every
    problem."""
    values: dict[str, Any] = {}
    origins = dict.fromkeys(KEYS, DEFAULT_ORIGIN)
    problems: list[Problem] = []
    for layer in layers:
        values.update(layer.values)
        origins.update(layer.origins)
        problems.extend(layer.problems)
    tree: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for key, value in values.items():
        section, _, name = key.partition(".")
        tree[section][name] = value
    config = msgspec.convert(tree, Config)
    problems.extend(Problem(origins[key], detail) for key, detail in problems_of(config))
    if problems:
        raise _error_of(problems)
    return Loaded(config, origins)


def toml_layer(document: Mapping[str, Any], origin: str) -> Layer:
    """Returns the layer of a parsed TOML document."""
    values: dict[str, Any] = {}
    problems = []
    for section, content in document.items():
        if section not in SECTIONS or not isinstance(content, dict):
            problems.append(Problem(origin, _unknown(section, content)))
            continue
        for name, value in content.items():
            key = f"{section}.{name}"
            if key not in KEYS:
                problems.append(Problem(origin, _unknown(key, value)))
            elif complaint := type_complaint(key, value):
                problems.append(Problem(origin, complaint))
            else:
                values[key] = value
    return Layer(values, dict.fromkeys(values, origin), tuple(problems))


def environ_layer(environ: Mapping[str, str]) -> Layer:
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    problems = []
    # A short name sorts first here, so that the full one wins where both are set.
    for name in sorted(environ, key=lambda name: (name not in SHORT_VARIABLES, name)):
        text = environ[name]
        if (
            not name.startswith(PREFIX)
            or name in WORKER_VARIABLES
            or name in (CONFIG_FILE, DEV_MARK, SLOW_CALLBACKS)
            or text.startswith(("tcp://", "udp://"))
            or (name not in _VARIABLES and re.search(_SERVICE_LINK, name))
        ):
            continue
        if name not in _VARIABLES:
            problems.append(Problem(name, f"unknown variable{_did_you_mean(name, _VARIABLES)}"))
            continue
        key = _VARIABLES[name]
        try:
            values[key] = parse_text(key, text)
            origins[key] = name
        except ValueError as exc:
            problems.append(Problem(name, str(exc)))
    return Layer(values, origins, tuple(problems))


def flag_layer(flags: Mapping[str, Any]) -> Layer:
    values: dict[str, Any] = {}
    problems = []
    for key, value in flags.items():
        try:
            values[key] = parse_text(key, value) if isinstance(value, str) else value
        except ValueError as exc:
            problems.append(Problem(FLAG_ORIGIN, str(exc)))
    return Layer(values, dict.fromkeys(values, FLAG_ORIGIN), tuple(problems))


def parse_text(key: str, text: str) -> Any:
    """Parses a key's value from a variable or flag. Raises ValueError with what was expected."""
    kind = KEYS[key]
    try:
        if kind is str:
            return text
        if kind is bool:
            return _truth(text)
        if kind in (int, float):
            return kind(text.strip())
        if get_origin(kind) is list or (get_origin(kind) is UnionType and not ("=" in text or "{" in text)):
            return [part.strip() for part in text.split(",") if part.strip()]
        return _table(text, key)
    except ValueError:
        raise ValueError(f"{key}: expected {_expected(key)}, got {text!r}") from None


def type_complaint(key: str, value: Any) -> str:
    """Describes what is wrong with the type of a value from a file; empty if nothing is."""
    try:
        msgspec.convert(value, KEYS[key], strict=True)
    except msgspec.ValidationError as exc:
        within = f": {exc}" if isinstance(value, dict) and get_origin(KEYS[key]) is dict else ""
        return f"{key}: expected {_expected(key)}, got {_shown(value)}{within}"
    return ""


def read_secret(path: str | Path) -> str:
    """Reads the secret in a file that only its owner can read, without the line end."""
    file = Path(path).expanduser()
    try:
        with file.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            data = stream.read(_MAX_SECRET_BYTES + 1)
    except OSError as exc:
        raise TorrentdistError("secret_invalid", path=str(file), detail=exc.strerror or str(exc)) from exc
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        detail = f"other users can access it (mode {stat.S_IMODE(mode):04o})"
        raise TorrentdistError("secret_invalid", path=str(file), detail=detail)
    try:
        secret = data.decode().strip()
    except UnicodeDecodeError as exc:
        raise TorrentdistError("secret_invalid", path=str(file), detail="it is not text") from exc
    if not secret or len(data) > _MAX_SECRET_BYTES:
        detail = "it is longer than any secret" if secret else "it is empty"
        raise TorrentdistError("secret_invalid", path=str(file), detail=detail)
    return secret


def secret_files(config: Config) -> list[str]:
    """Returns the files with secrets that the configuration names."""
    keys = [key for key in KEYS if key.endswith(("token_file", "auth_file", "key_file", "_key"))]
    return sorted({path for key in keys if (path := value_of(config, key))})


def _file_layer(path: Path) -> Layer:
    import tomllib

    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as exc:
        return Layer({}, {}, (Problem(str(path), f"cannot be read: {exc.strerror}"),))
    except ValueError as exc:
        return Layer({}, {}, (Problem(str(path), toml_complaint(text, str(exc))[1]),))
    except RecursionError:
        return Layer({}, {}, (Problem(str(path), "is nested too deeply"),))
    return toml_layer(document, str(path))


def _error_of(problems: list[Problem]) -> TorrentdistError:
    first, *others = problems
    detail = "\n".join([first.detail, *(f"{origin}: {detail}" for origin, detail in others)])
    return TorrentdistError("config_invalid", origin=first.origin, detail=detail)


def _unknown(key: str, value: Any) -> str:
    if key in SECTIONS:
        return f"{key}: expected a table, got {_shown(value)}"
    what = "section" if isinstance(value, dict) and "." not in key else "key"
    return f"unknown {what} {key!r}{_did_you_mean(key, SECTIONS if what == 'section' else KEYS)}"


def _did_you_mean(text: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    names = {key.removeprefix(PREFIX): key for key in known}  # the prefix of all variables is no likeness
    same_name = [key for key in names.values() if key.rpartition(".")[2] == text.rpartition(".")[2]]
    close = [names[name] for name in get_close_matches(text.removeprefix(PREFIX), names, n=1, cutoff=CLOSE)]
    # A plain name lacks its section; a dotted one is more likely mistyped than misplaced.
    nearest = close or same_name if "." in text else same_name or close
    return f", did you mean {nearest[0]!r}?" if nearest else ""


def _expected(key: str) -> str:
    kind = KEYS[key]
    names = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}
    shapes = {list: "a list of strings", UnionType: "a list of strings or a table (k=v,k=v in a variable)"}
    return names.get(kind) or shapes.get(get_origin(kind), "a table (k=v,k=v in a variable)")


def _shown(value: Any) -> str:
    names = {str: "the string", bool: "the boolean", int: "the integer", float: "the number", list: "the list"}
    text = repr(value)
    name = "the table" if isinstance(value, dict) else names.get(type(value), "the value")
    return f"{name} {text if len(text) <= 60 else text[:57] + '...'}"


def _truth(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError(text)
    return word in _TRUE


def _table(text: str, key: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            return msgspec.to_builtins(decode_json(os.fsencode(text), KEYS[key]))  # type: ignore[no-any-return]
        except msgspec.MsgspecError as exc:
            raise ValueError(text) from exc
    table = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise ValueError(text)
        table[name.strip()] = value.strip()
    return table
