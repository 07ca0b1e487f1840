"""The classes of our commands and groups, and what one call of a command carries: the shared
options, and the configuration that they lead to.

Always: `--help` of a group imports none of its commands, so that it is fast. The short help of a
lazy command is written next to its module; a test compares it with the command's own help. A
shared option may precede or follow the command's name. If it is given twice, the later one
counts.
Never: read a file before a command asks for the configuration.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar, cast

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from torrentdist.model.configuration.config import Config
    from torrentdist.model.configuration.settings import Loaded


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


class ProgressStyle(StrEnum):
    AUTO = "auto"
    PLAIN = "plain"
    JSON = "json"
    NONE = "none"


@dataclass
class Session:
    output: OutputFormat | None = None
    """None means a table, or the one useful value with --quiet."""
    quiet: bool = False
    verbose: bool = False
    config_file: Path | None = None
    masters: str | None = None
    progress: ProgressStyle | None = None
    """None means auto, or none with --quiet."""
    dry_run: bool = False
    """Whether a change is only checked, and shown as if it had been made."""
    flags: dict[str, Any] = field(default_factory=dict)
    """Dotted configuration keys that a command's own options set."""

    @property
    def value_only(self) -> bool:
        return self.quiet and self.output is None

    @property
    def progress_style(self) -> ProgressStyle:
        return self.progress or (ProgressStyle.NONE if self.quiet else ProgressStyle.AUTO)

    def told(self, done: str, would: str) -> str:
        """Returns what was done, or what would be done."""
        return would if self.dry_run else done

    def named_file(self) -> Path | None:
        """Returns the file of --config or, without it, of TORRENTDIST_CONFIG."""
        from torrentdist.model.configuration.settings import file_of_variable

        return self.config_file or file_of_variable()

    def loaded(self) -> Loaded:
        from torrentdist.model.configuration.settings import load

        flags = dict(self.flags)
        if self.masters is not None:
            flags["client.masters"] = self.masters
        return load(config_file=self.config_file, flags=flags)

    def config(self) -> Config:
        return self.loaded().config


SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
SHARED_NAMES = frozenset({"output", "quiet", "verbose", "config_file", "masters", "progress"})


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is not None and value is not False and param.name is not None:
        setattr(ctx.ensure_object(Session), param.name, value)


def shared_options() -> list[click.Parameter]:
    common: dict[str, Any] = {"callback": _remember, "expose_value": False}
    return [
        click.Option(
            ["-o", "--output"],
            type=click.Choice([form.value for form in OutputFormat]),
            help="Output format; JSON keeps its keys between releases.",
            **{**common, "callback": _remember_format},
        ),
        click.Option(["-q", "--quiet"], is_flag=True, help="Print only the one useful value.", **common),
        click.Option(["-v", "--verbose"], is_flag=True, help="Print more logs, and the details of an error.", **common),
        click.Option(
            ["--config", "config_file"],
            type=click.Path(dir_okay=False, path_type=Path),
            metavar="FILE",
            help="A configuration file. It overrides ./torrentdist.toml and the others.",
            **common,
        ),
        click.Option(["--masters"], metavar="URL,URL", help="URLs of some of the cluster's masters.", **common),
        click.Option(
            ["--progress"],
            type=click.Choice([style.value for style in ProgressStyle]),
            help="Progress on stderr: a bar or lines (auto), lines, JSON lines, or none.",
            **{**common, "callback": _remember_progress},
        ),
    ]


F = TypeVar("F", bound=Callable[..., Any])
DRY_RUN_HELP = "Only check it, and show what would change."


def dry_run_option(function: F) -> F:
    """Adds --dry-run to a command. The session tells its calls to change nothing."""
    return click.option("--dry-run", is_flag=True, expose_value=False, callback=_remember, help=DRY_RUN_HELP)(function)


def _remember_format(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    _remember(ctx, param, OutputFormat(value) if value else None)


def _remember_progress(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    _remember(ctx, param, ProgressStyle(value) if value else None)


class SharedOptions(click.Command):
    """Adds the shared options, shows them in a section of their own, and refuses empty values of
    any parameter.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        own: list[click.Parameter] = list(kwargs.get("params") or [])
        taken = {name for param in own for name in param.opts}
        # `dev up --masters 3` differs from the shared option.
        kwargs["params"] = [*own, *(option for option in shared_options() if not taken & set(option.opts))]
        kwargs["context_settings"] = {**SETTINGS, **(kwargs.get("context_settings") or {})}
        super().__init__(*args, **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # Check before click converts the values: it turns an empty path into the current directory.
        values, _, _ = self.make_parser(ctx).parse_args(list(args))
        for param in self.params:
            if _has_empty(values.get(param.name or "")):
                raise click.BadParameter("it is empty; was a variable not set?", ctx=ctx, param=param)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                (shared if param.name in SHARED_NAMES or param.name == "help" else own).append(record)
        if own:
            with formatter.section("Options"):
                formatter.write_dl(own)
        with formatter.section("Options of every command"):
            formatter.write_dl(shared)
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)


def _has_empty(value: Any) -> bool:
    """Whether a parameter, or one of its values if it takes several, is an empty text."""
    return any(map(_has_empty, value)) if isinstance(value, list | tuple) else value == ""


class Command(SharedOptions):
    """A command. Its function gets the session as its first argument."""

    def invoke(self, ctx: click.Context) -> Any:
        assert self.callback is not None
        return ctx.invoke(self.callback, ctx.ensure_object(Session), **ctx.params)


class Lazy(NamedTuple):
    """The module of a command below `torrentdist_cli`, its one line of help, and what the module
    calls it, if not by its name on the command line."""

    module: str
    short_help: str
    attribute: str = ""


class Group(SharedOptions, click.Group):
    """A group whose commands are imported when they are called."""

    def __init__(self, *args: Any, lazy: Mapping[str, Lazy] | None = None, **kwargs: Any) -> None:
        self.lazy = dict(lazy or {})
        super().__init__(*args, **kwargs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy, *super().list_commands(ctx)]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Offers commands by what is written next to their modules, and imports none of them."""
        from click.shell_completion import CompletionItem

        found = [(name, each.short_help) for name, each in self.lazy.items()]
        found += [(name, each.get_short_help_str()) for name, each in self.commands.items()]
        offered = [CompletionItem(name, help=text) for name, text in found if name.startswith(incomplete)]
        return [*offered, *click.Command.shell_complete(self, ctx, incomplete)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        lazy = self.lazy[cmd_name]
        gc.disable()  # Nothing that is imported here becomes garbage.
        try:
            module = import_module(f"torrentdist_cli.{lazy.module}")
            return cast(click.Command, getattr(module, lazy.attribute or cmd_name))
        finally:
            gc.freeze()  # These objects stay, so the collector need not scan them again.
            gc.enable()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not ctx.resilient_parsing:
            self._refuse(ctx, args[0])
        return super().resolve_command(ctx, args)

    def _refuse(self, ctx: click.Context, name: str) -> NoReturn:
        from difflib import get_close_matches

        near = get_close_matches(name, self.list_commands(ctx), n=1, cutoff=0.5)
        ctx.fail(f"there is no command {name!r}" + (f", did you mean {near[0]!r}?" if near else ""))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        eager = {name: self.commands[name].get_short_help_str(80) for name in self.commands}
        rows = {**{name: lazy.short_help for name, lazy in self.lazy.items()}, **eager}
        with formatter.section("Commands"):
            formatter.write_dl(list(rows.items()))
