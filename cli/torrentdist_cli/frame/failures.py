"""Turns a failure into a message on stderr and an exit code.

Always: an error has the same text with every `-o`; stdout has all the data or none. Text from
outside is made printable first, so that no name can control a terminal.
"""

from collections.abc import Iterator

import click

from torrentdist.api.known_failures import known_failure
from torrentdist.model.errors import EXIT_BUG, EXIT_USAGE, TorrentdistError
from torrentdist.model.wording import cause_text
from torrentdist_cli.frame.terminal import say, say_all, say_help

EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
EXIT_PIPE = 141
"""The reader of our output has gone, as after `| head -1`."""


def report(exc: BaseException, *, verbose: bool) -> int:
    """Reports on stderr what went wrong, and returns the exit code."""
    if isinstance(exc, click.exceptions.NoArgsIsHelpError):
        say_help(exc.ctx.get_help() if exc.ctx else str(exc))
        return EXIT_USAGE
    if isinstance(exc, click.ClickException):
        return _report_usage(exc)
    error = known_failure(exc)
    if verbose and (error is None or error.exit_code == EXIT_BUG):
        _print_traceback(exc)
    if error is None:
        _say("internal", f"{type(exc).__name__}: {exc}", (), _bug_hint(verbose))
        return EXIT_BUG
    _say(error.code, error.message, causes_of(error), error.hint)
    return error.exit_code


def causes_of(error: TorrentdistError) -> Iterator[str]:
    """Yields the causes of an error, except those that its own sentence already contains."""
    said, cause = error.message, error.__cause__
    while cause is not None:
        text = cause_text(cause) or type(cause).__name__
        if text not in said:
            yield text
            said += text
        cause = cause.__cause__


def say_interrupted(resume: str) -> None:
    _say("interrupted", "stopped before it was done", (), f"what has arrived is kept; go on with: {resume}")


def _report_usage(exc: click.ClickException) -> int:
    ctx = getattr(exc, "ctx", None)
    where = f"{ctx.command_path} --help" if ctx else "torrentdist --help"
    _say("usage", exc.format_message(), (), f"see `{where}`")
    return EXIT_USAGE


def _say(code: str, message: str, causes: Iterator[str] | tuple[str, ...], hint: str) -> None:
    say(message, label=f"error[{code}]:", color="red")
    for cause in causes:
        say(f"cause: {cause}")
    say(hint, label="hint:", color="cyan")


def _bug_hint(verbose: bool) -> str:
    return "this is a bug of torrentdist" + ("." if verbose else "; run it again with -v to see where it happened.")


def _print_traceback(exc: BaseException) -> None:
    import traceback

    say_all("".join(traceback.format_exception(exc)))
