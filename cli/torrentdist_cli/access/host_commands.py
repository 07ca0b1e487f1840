"""`torrentdist host`: invite hosts, let this one join, list them, shut one out, and forget one."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import click

from torrentdist.client import host_client
from torrentdist.model.access.host_messages import HostView
from torrentdist.model.configuration.settings import read_secret
from torrentdist.model.ids import peer_id
from torrentdist.security.authority.invitation import invitation_text, parse_invitation
from torrentdist.security.certificate_identity import CertificateRole
from torrentdist_cli.frame.asking_masters import ask_masters, run
from torrentdist_cli.frame.command import Command, Group, Session, dry_run_option
from torrentdist_cli.frame.rendering import DURATION, facts, grid, show, show_all
from torrentdist_cli.shell.candidates import host_ids

T = TypeVar("T")
ROLES = (CertificateRole.MASTER.value, CertificateRole.SUPERVISOR.value)


@click.group(cls=Group)
def host() -> None:
    """Invite hosts, let this one join, list them, shut one out, and forget one that is gone."""


@host.command(cls=Command)
@click.argument("id")
@click.option("--role", type=click.Choice(ROLES), required=True, help="Role of the host.")
@click.option("--address", "addresses", multiple=True, required=True, metavar="A", help="Where others reach it.")
@click.option("--ttl", type=DURATION, default=3600.0, show_default="1h", help="How long it is good, at most 7 days.")
@click.option("--bundles", metavar="GLOB", default="*", show_default=True, help="What its gateway may fetch.")
@click.option("--assigned-only", is_flag=True, help="Its gateway may fetch nothing that is not assigned to it.")
@dry_run_option
def invite(
    session: Session, id: str, role: str, addresses: tuple[str, ...], ttl: float, bundles: str, assigned_only: bool
) -> None:
    """Make a single-use invitation for the host ID, and show it once.

    Put it into a file on that host that only its user can read (chmod 600), and run `torrentdist
    host join` there. It is good for exactly this role, id and address. Exits 9 if a live host has
    the id. `torrentdist host allow` explains --bundles, and changes it later.

    With -q: the invitation.
    """
    pattern = "" if assigned_only else bundles
    invitation, expires_at = ask_masters(
        session, lambda c: host_client.invite_host(c, id, role, addresses, ttl, pattern)
    )
    text = "" if session.dry_run else invitation_text(invitation)  # it would open nothing
    about = {"id": invitation.id, "role": invitation.role, "addresses": invitation.addresses}
    data = {**about, "expires_at": expires_at, "invitation": text}
    pairs = [*([("invitation", text)] if text else []), (invitation.role, invitation.id)]
    pairs += [("addresses", ", ".join(invitation.addresses)), ("expires", _moment(expires_at))]
    show(session, data, value=text, table=lambda: facts(pairs))


@host.command(cls=Command)
@click.option(
    "--invitation-file", "file", type=click.Path(dir_okay=False, path_type=Path), required=True, metavar="F",
    help="The file with the invitation.",
)  # fmt: skip
def join(session: Session, file: Path) -> None:
    """Make this host's key, and get its certificate, with the --config of its daemon.

    The [tls] section says where the files go. Run again after a failure, it goes on: the same
    invitation gives the same certificate for the same key. On a master it also fetches the CA's
    key, so that this master can issue certificates when it leads.

    With -q: the path of the certificate.
    """
    if session.named_file() is None:
        raise click.UsageError("give the daemon's configuration with --config FILE")
    invitation = parse_invitation(read_secret(file), str(file))
    view = run(host_client.join(session.config(), invitation))
    pairs = [(view.role, view.id), ("serial", view.serial), ("valid until", _moment(view.expires_at))]
    pairs += [("certificate", view.certificate_file), ("key", view.key_file), ("CA", view.ca_file)]
    show(session, view, value=view.certificate_file, table=lambda: facts(pairs))


@host.command(cls=Command)
@click.argument("id", shell_complete=host_ids)
@click.option("--bundles", metavar="GLOB", help="A pattern of bundle ids.")
@click.option("--assigned-only", is_flag=True, help="Only bundles that are assigned to it.")
@dry_run_option
def allow(session: Session, id: str, bundles: str | None, assigned_only: bool) -> None:
    """Set which bundles the supervisor ID may have, besides those that are assigned to it.

    A supervisor always may have what `bundle distribute` sends there, and what the workers need
    that are placed there. The pattern says what else its certificate may fetch: what people and
    Spark's executors ask its gateway for. It changes nothing about bundles that the host has.

    With -q: its id.
    """
    if (bundles is None) is not assigned_only:
        raise click.UsageError("give either --bundles or --assigned-only")
    view = ask_masters(session, lambda client: host_client.allow_bundles(client, id, bundles or ""))
    what = f"bundles that match {view.bundles!r}" if view.bundles else "no other bundles"
    show(
        session,
        view,
        value=view.id,
        table=lambda: f"{view.id} {session.told('may', 'could')} have what is assigned to it, and {what}",
    )


@host.command("ls", cls=Command)
def list_hosts(session: Session) -> None:
    """List the hosts that have certificates, and open invitations.

    These are the hosts whose certificates a leader issued, and those of `ca issue` that are
    registered, were revoked, or were given a pattern.

    With -q: their ids.
    """
    views = ask_masters(session, host_client.list_hosts)
    show_all(session, views, value=lambda view: view.id, table=lambda: _table(views))


@host.command(cls=Command)
@click.argument("id", shell_complete=host_ids)
@click.option("--unknown", is_flag=True, help="Also if no such host was seen, as one of `ca issue` that never ran.")
@dry_run_option
def revoke(session: Session, id: str, unknown: bool) -> None:
    """Shut the host ID out within seconds, with every certificate that it has.

    Exits 0 also if it was revoked before, and 3 if there is no such host.

    With -q: its id.
    """
    view = ask_masters(session, lambda client: host_client.revoke_host(client, id, unknown=unknown))
    show(session, view, value=view.id, table=lambda: f"{view.id} {session.told('is', 'would be')} {view.state.value}")


@host.command(cls=Command)
@click.argument("id")
@dry_run_option
def forget(session: Session, id: str) -> None:
    """Forget the host or master ID, which left without a clean stop or a drain.

    Until then, or until it returns, it is listed as gone: in the console, `cluster`, `supervisor
    ls`, `top`, `doctor` and the metrics. Exits 9 if it is registered, and 3 if it is not missed.

    With -q: its id.
    """
    name = peer_id(id)
    ask_masters(session, lambda client: host_client.forget_host(client, name))
    show(session, {"id": name}, value=name, table=lambda: f"{name} {session.told('is', 'would be')} forgotten")


def _moment(at: float) -> str:
    if not at:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _table(views: Sequence[HostView]) -> str:
    return grid(
        ("HOST", "ROLE", "STATE", "EXPIRES", "BUNDLES", "ADDRESSES", "SERIAL"),
        [
            (
                v.id,
                v.role,
                v.state.value,
                _moment(v.expires_at) if v.expires_at else "",
                v.bundles if v.role != CertificateRole.MASTER else "",
                ",".join(v.addresses),
                v.serial,
            )
            for v in views
        ],
    )
