"""`torrentdist group`: shows and changes resource groups, and lets members in."""

import click

from torrentdist.client import group_client
from torrentdist.model.wire.cluster_messages import GroupChangeView, GroupLineView, GroupView
from torrentdist_cli.frame.asking_masters import ask_masters
from torrentdist_cli.frame.command import Command, Group, Session, dry_run_option
from torrentdist_cli.frame.rendering import facts, grid, show, show_all
from torrentdist_cli.shell.candidates import group_names


@click.group(cls=Group)
def group() -> None:
    """Resource groups: see them, add and remove resources."""


@group.command(cls=Command)
def ls(session: Session) -> None:
    """List the resource groups.

    With -q: their names.
    """
    rows: list[GroupLineView] = ask_masters(session, group_client.list_groups)
    show_all(session, rows, value=lambda row: row.group, table=lambda: _groups_table(rows))


@group.command(name="show", cls=Command)
@click.argument("name", metavar="GROUP", shell_complete=group_names)
def show_group(session: Session, name: str) -> None:
    """Show a group: its members, its coordinator, and which member each resource is assigned to.

    With -q: the resources that are assigned to no member.
    """
    view: GroupView = ask_masters(session, lambda client: group_client.show_group(client, name))
    show(session, view, value="\n".join(view.unassigned), table=lambda: _group_table(view))


@group.command(cls=Command)
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@click.argument("resources", metavar="RESOURCE...", nargs=-1, required=True)
@dry_run_option
def add(session: Session, name: str, resources: tuple[str, ...]) -> None:
    """Add resources to a group, which is created if needed. Existing resources stay as they are.

    With -q: the resources that were added.
    """
    added = ask_masters(session, lambda client: group_client.add_resources(client, name, resources))
    _show_change(session, name, "added", added)


@group.command(cls=Command)
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@click.argument("resources", metavar="RESOURCE...", nargs=-1, required=True)
@dry_run_option
def rm(session: Session, name: str, resources: tuple[str, ...]) -> None:
    """Remove resources from a group; exit 3 at the first resource that it does not have.

    A member that works on one continues until the next rebalancing. Until then no other member gets
    it.

    With -q: the resources that were removed.
    """
    removed = ask_masters(session, lambda client: group_client.remove_resources(client, name, resources))
    _show_change(session, name, "removed", removed)


@group.command(cls=Command)
@click.argument("name", metavar="GROUP", shell_complete=group_names)
def identity(session: Session, name: str) -> None:
    """Show the identity of a group's members in ZooKeeper, if zookeeper.identities is on.

    Put it into a file that only its user can read (chmod 600), and name the file in
    zookeeper.auth_file of the members' configuration. All members of a group share it.

    With -q: the same.
    """
    view = ask_masters(session, lambda client: group_client.group_identity(client, name))
    show(session, view, value=view.auth.rstrip(), table=lambda: view.auth.rstrip())


def _show_change(session: Session, name: str, verb: str, changed: list[str]) -> None:
    would = {"added": "would add", "removed": "would remove"}[verb]
    view = GroupChangeView(group=name, changed=changed)
    told = f"{session.told(verb, would)} {len(changed)} in {name}" if changed else f"nothing to be {verb} in {name}"
    show(session, view, value="\n".join(changed), table=lambda: told)


def _groups_table(rows: list[GroupLineView]) -> str:
    return grid(
        ("GROUP", "ALGORITHM", "MEMBERS", "RESOURCES"),
        [(row.group, row.algorithm or "", str(row.members), str(row.resources)) for row in rows],
        right=("MEMBERS", "RESOURCES"),
    )


def _group_table(view: GroupView) -> str:
    about = facts(
        [
            ("group", view.group),
            ("algorithm", view.algorithm or "its first member chooses"),
            ("state", view.state),
            ("resources", str(len(view.resources))),
            ("unassigned", ", ".join(view.unassigned) or "none"),
        ]
    )
    members = grid(
        ("MEMBER", "ID", "ROLE", "RESOURCES"),
        [
            (row.member, row.id, "coordinator" if row.coordinator else "", ", ".join(row.resources))
            for row in view.members
        ],
    )
    return f"{about}\n\n{members}"
