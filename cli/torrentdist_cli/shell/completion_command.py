"""`torrentdist completion`: the script with which a shell completes our commands."""

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from torrentdist_cli.frame.command import Command, Session
from torrentdist_cli.frame.terminal import put_value

SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
VARIABLE = "_TORRENTDIST_COMPLETE"
"""Set by the script when the shell asks for completions."""


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(list(SHELLS)))
def completion(_: Session, shell: str) -> None:
    """Print the script that completes commands, options and ids in your shell.

    bash: put `eval "$(torrentdist completion bash)"` into ~/.bashrc.

    zsh: put `eval "$(torrentdist completion zsh)"` into ~/.zshrc, after compinit.

    fish: `torrentdist completion fish > ~/.config/fish/completions/torrentdist.fish`.
    """
    root = click.get_current_context().find_root().command
    completer = SHELLS[shell](root, {}, "torrentdist", VARIABLE)
    # Not its own source(): that of bash starts a bash to ask for its version.
    put_value(completer.source_template % completer.source_vars())
