"""`torrentdist token`: create, limit, list and revoke the tokens of people and programs."""

import time
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from torrentdist.client import access_client
from torrentdist.model.access.token_messages import QuotaBody, QuotaView, TokenBody, TokenView
from torrentdist.security.tokens import ROLES
from torrentdist_cli.frame.asking_masters import ask_masters
from torrentdist_cli.frame.command import Command, Group, Session, dry_run_option
from torrentdist_cli.frame.rendering import DURATION, SIZE, facts, grid, show, show_all, size
from torrentdist_cli.shell.candidates import token_names

DEFAULT_TTL_SECS = 90 * 86400.0


@click.group(cls=Group)
def token() -> None:
    """Create, list and revoke tokens of people and programs."""


@token.command(cls=Command)
@click.argument("name")
@click.option("--role", type=click.Choice([role.value for role in ROLES]), required=True, help="Role of the token.")
@click.option(
    "--bundles",
    metavar="GLOB",
    default="*",
    show_default=True,
    help="Bundles that it may read, change and run as far as its role allows, such as 'etl-*'.",
)
@click.option("--reads", metavar="GLOB", default="", help="Further bundles that it may only read; '*': all.")
@click.option(
    "--ttl", type=DURATION, default=DEFAULT_TTL_SECS, show_default="90d", help="How long it lives, at most 10 years."
)
@click.option("--max-bytes", type=SIZE, default="0", help="Most bytes of all its bundles, such as 50G; 0: no limit.")
@click.option("--max-distributions", type=click.IntRange(0), default=0, help="Most distributions at once; 0: no limit.")
@dry_run_option
def create(session: Session, /, name: str, ttl: float, max_bytes: float, **given: Any) -> None:
    """Create the token NAME, and show it once.

    Put it into a file that only its user can read (chmod 600), and name the file in
    client.token_file. The cluster keeps a hash of it, so nobody can show it again. Exits 9 if there
    is a token NAME that is neither revoked nor expired.

    With -q: the token.
    """

    wanted = TokenBody(name=name, ttl_secs=ttl, max_bytes=int(max_bytes), **given)
    view = ask_masters(session, lambda client: access_client.create_token(client, wanted))
    if session.dry_run:
        view = msgspec.structs.replace(view, token="")  # it opens nothing
    pairs = [
        *([("token", view.token)] if view.token else []),
        ("name", view.name),
        ("role", view.role),
        ("bundles", view.bundles),
        ("reads", _reads(view.reads)),
        ("expires", moment(view.expires_at)),
    ]
    show(session, view, value=view.token, table=lambda: facts(pairs))


@token.command("ls", cls=Command)
def list_tokens(session: Session) -> None:
    """List all tokens, also those that ended in the last 30 days. No secret is shown.

    A token that was made before patterns bound what is read reads everything; its READS say so. You
    see your own token, and those whose patterns name nothing that you may not read.

    With -q: their names.
    """

    views = ask_masters(session, lambda client: access_client.list_tokens(client))
    show_all(session, views, value=lambda view: view.name, table=lambda: _table(views))


@token.command(cls=Command)
@click.argument("name", shell_complete=token_names)
@dry_run_option
def revoke(session: Session, name: str) -> None:
    """Revoke the token NAME. Every master refuses it within seconds.

    Exits 0 also if it was revoked before, and 3 if there is none.

    With -q: its name.
    """

    view = ask_masters(session, lambda client: access_client.revoke_token(client, name))
    show(
        session, view, value=view.name, table=lambda: f"{view.name} {session.told('is', 'would be')} {view.state.value}"
    )


@token.command(name="quota", cls=Command)
@click.argument("name", shell_complete=token_names)
@click.option("--max-bytes", type=SIZE, help="Most bytes of all its bundles, such as 50G; 0: no limit.")
@click.option("--max-distributions", type=click.IntRange(0), help="Most distributions at once; 0: no limit.")
@dry_run_option
def quota_command(session: Session, name: str, max_bytes: float | None, max_distributions: int | None) -> None:
    """Show or change what the holder of the token NAME may use.

    An upload or a distribution that would exceed it exits 4 with the figures. What is there stays.

    With -q: the bytes of its bundles.
    """
    limit = None if max_bytes is None else int(max_bytes)
    body = QuotaBody(max_bytes=limit, max_distributions=max_distributions)
    if body == QuotaBody():
        view = ask_masters(session, lambda client: access_client.quota(client, name))
    else:
        view = ask_masters(session, lambda client: access_client.set_quota(client, name, body))
    show(session, view, value=str(view.bytes), table=lambda: _quota(view))


def _quota(view: QuotaView) -> str:
    allowed = size(view.max_bytes) if view.max_bytes else "any number"
    return facts(
        [
            ("name", view.name),
            ("bytes", f"{size(view.bytes)} of {allowed}"),
            ("distributions", f"{view.distributions} of {view.max_distributions or 'any number'}"),
        ]
    )


def moment(at: float | None) -> str:
    return "never" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _reads(patterns: str | None) -> str:
    return "everything (made before --bundles bound what is read)" if patterns is None else patterns


def _table(views: Sequence[TokenView]) -> str:
    return grid(
        ("NAME", "ROLE", "BUNDLES", "READS", "QUOTA", "STATE", "EXPIRES", "CREATED BY"),
        [
            (
                view.name,
                view.role,
                view.bundles,
                _reads(view.reads),
                "yes" if view.has_quota else "",
                view.state.value,
                moment(view.expires_at),
                view.created_by,
            )
            for view in views
        ],
    )
