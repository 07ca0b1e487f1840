"""`torrentdist ca`: the cluster's CA as a directory, for the first hosts and for people.

Never: need a network, a daemon or a configuration.
"""

import time
from pathlib import Path

import click

from torrentdist.security.certificate_identity import CertificateRole
from torrentdist_cli.frame.command import Command, Group, Session
from torrentdist_cli.frame.rendering import facts, show

_DIR = click.Path(file_okay=False, path_type=Path)


@click.group(cls=Group)
def ca() -> None:
    """Make the cluster's CA, and certificates from it."""


@ca.command(cls=Command)
@click.argument("directory", metavar="DIR", type=_DIR)
@click.option(
    "--cluster", default="", metavar="NAME", help="The cluster's name in its certificates; by default random."
)
def init(session: Session, directory: Path, cluster: str) -> None:
    """Make a CA in DIR. Where there is one already, show it and change nothing.

    DIR/ca.key can make a certificate of any host: keep it as you keep a root password.

    With -q: the fingerprint of the CA.
    """
    from torrentdist.security.authority.authority_files import init_authority

    view = init_authority(directory, cluster, time.time())
    pairs = [("CA", f"{view.dir} ({'made' if view.created else 'was there; nothing was changed'})")]
    pairs += [("cluster", view.cluster), ("fingerprint", view.fingerprint)]
    show(session, view, value=view.fingerprint, table=lambda: facts(pairs))


@ca.command(name="issue", cls=Command)
@click.argument("id")
@click.option("--role", type=click.Choice([role.value for role in CertificateRole]), required=True)
@click.option("--address", "addresses", multiple=True, metavar="A", help="Where others reach it; may be repeated.")
@click.option(
    "--ca",
    "directory",
    type=_DIR,
    default=Path("."),
    metavar="DIR",
    help="The directory of `ca init`; by default this one.",
)
@click.option("--out", type=_DIR, metavar="OUT", help="Where the files go; by default DIR/hosts/ID.")
def issue_certificate(
    session: Session, id: str, role: str, addresses: tuple[str, ...], directory: Path, out: Path | None
) -> None:
    """Issue a certificate for ID: a daemon, a person or a ZooKeeper, valid for 30 days.

    OUT gets ca.pem, certificate.pem and key.pem, to be copied to the host and named in its [tls]
    section; for a host also zookeeper.auth, which zookeeper.auth_file names. Run again, it replaces
    a certificate that is past half of its life, and keeps the key.

    With -q: the path of the certificate.
    """
    from torrentdist.security.authority.authority_files import issue_files

    view = issue_files(directory, CertificateRole(role), id, addresses, out, time.time())
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(view.expires_at))
    done = "issued" if view.created else "was there; nothing was changed"
    pairs = [(view.role, f"{view.id} ({done})"), ("addresses", ", ".join(view.addresses) or "none")]
    pairs += [("serial", view.serial), ("valid until", until)]
    pairs += [("certificate", view.certificate_file), ("key", view.key_file), ("CA", view.ca_file)]
    pairs += [("ZooKeeper", view.zookeeper_auth_file)] if view.zookeeper_auth_file else []
    show(session, view, value=view.certificate_file, table=lambda: facts(pairs))
