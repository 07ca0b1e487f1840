"""Reads the arguments of spark-submit: its options, the application, and the application's own
arguments.

Always: every argument of Spark is handed on as it was given, in its order.
Pure: no I/O.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from torrentdist.model.errors import TorrentdistError

WITH_VALUE: Final = frozenset(
    f"--{name}"
    for name in (
        *("archives", "class", "conf", "deploy-mode", "driver-class-path", "driver-cores", "driver-java-options"),
        *("driver-library-path", "driver-memory", "exclude-packages", "executor-cores", "executor-memory", "files"),
        *("jars", "keytab", "kill", "master", "name", "num-executors", "packages", "principal", "properties-file"),
        *("proxy-user", "py-files", "queue", "remote", "repositories", "status", "total-executor-cores"),
    )
) | {"-c"}
SWITCHES: Final = frozenset(
    {"--supervise", "--usage-error", "--verbose", "-v", "--version", "--load-spark-defaults", "--help", "-h"}
)
_CONF: Final = ("--conf", "-c")


class SparkArguments(msgspec.Struct, frozen=True):
    options: tuple[str, ...] = ()
    """The options with their values, as given."""
    application: str = ""
    """The main file; empty if there is none."""
    arguments: tuple[str, ...] = ()
    values: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The last value of each option, without its dashes."""
    conf: Mapping[str, str] = msgspec.field(default_factory=dict)


class SplitArguments(msgspec.Struct, frozen=True):
    own: tuple[str, ...]
    """The options that are torrentdist's own."""
    spark: SparkArguments


def split_arguments(given: Sequence[str], own: Mapping[str, bool]) -> SplitArguments:
    """Splits the arguments of a command. `own`: torrentdist's own options, and whether each takes a
    value. Options end at the application: what follows belongs to it."""
    left, ours, options = list(given), [], []
    values: dict[str, str] = {}
    conf: dict[str, str] = {}
    while left and left[0].startswith("-"):
        name, equals, value = left.pop(0).partition("=")
        if name in SWITCHES and name not in own:
            options.append(name)
            continue
        taken = [name]
        if own.get(name, name in WITH_VALUE):
            taken.append(value if equals else _value_of(name, left))
        elif name not in own:
            raise TorrentdistError("usage", detail=f"{name} is an option neither of spark-submit nor of torrentdist")
        if name in own:
            ours += taken
            continue
        options += taken
        values[name.lstrip("-")] = taken[1]
        if name in _CONF:
            key, _, set_to = taken[1].partition("=")
            conf[key.strip()] = set_to.strip()
    application, *arguments = left or [""]
    spark = SparkArguments(tuple(options), application, tuple(arguments), values, conf)
    return SplitArguments(tuple(ours), spark)


def _value_of(name: str, left: list[str]) -> str:
    if not left:
        raise TorrentdistError("usage", detail=f"{name} has no value")
    return left.pop(0)
