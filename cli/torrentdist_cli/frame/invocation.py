"""Collects the shared options of a command line, and loads the resulting configuration.

Always: a shared option may precede or follow the command's name. If it is given twice, the later
one counts.
Never: read a file before a command asks for the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
