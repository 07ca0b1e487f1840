"""`torrentdist group`: lets an administrator see and change resource groups, directly in
ZooKeeper."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

import click
import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.group_views import GroupChangeView, GroupLineView, GroupView
from torrentdist_cli.frame.command import Command, Group
from torrentdist_cli.frame.interruption import run
from torrentdist_cli.frame.invocation import Session
from torrentdist_cli.frame.rendering import facts, grid, show, show_all


@click.group(cls=Group)
def group() -> None:
    """Resource groups: see them, add and remove resources.

    These commands talk directly to the ZooKeeper that [zookeeper] of the configuration names; no
    master is needed.
    """


@group.command(cls=Command)
@click.pass_obj
def ls(session: Session) -> None:
    """List the resource groups.

    With -q: their names.
    """
    rows: list[GroupLineView] = _ask(session, lambda admin, zk: admin.list_groups(zk), "looked")
    show_all(session, rows, value=lambda row: row.group, table=lambda: _groups_table(rows))


@group.command(name="show", cls=Command)
@click.argument("name", metavar="GROUP")
@click.pass_obj
def show_group(session: Session, name: str) -> None:
    """Show a group: its members, its coordinator, and which member each resource is assigned to.

    With -q: the resources that are assigned to no member.
    """
    view: GroupView = _ask(session, lambda admin, zk: admin.show_group(zk, name), "looked")
    show(session, view, value="\n".join(view.unassigned), table=lambda: _group_table(view))


@group.command(cls=Command)
@click.argument("name", metavar="GROUP")
@click.argument("resources", metavar="RESOURCE...", nargs=-1, required=True)
@click.pass_obj
def add(session: Session, name: str, resources: tuple[str, ...]) -> None:
    """Add resources to a group, which is created if needed. Existing resources stay as they are.

    With -q: the resources that were added.
    """

    async def work(admin: Any, zk: Any) -> list[str]:
        return [resource for resource in resources if await admin.add_resource(zk, name, resource)]

    _show_change(session, name, "added", _ask(session, work))


@group.command(cls=Command)
@click.argument("name", metavar="GROUP")
@click.argument("resources", metavar="RESOURCE...", nargs=-1, required=True)
@click.pass_obj
def rm(session: Session, name: str, resources: tuple[str, ...]) -> None:
    """Remove resources from a group; exit 3 at the first resource that it does not have.

    A member that works on one continues until the next rebalancing. Until then no other member gets
    it.

    With -q: the resources that were removed.
    """

    async def work(admin: Any, zk: Any) -> list[str]:
        for resource in resources:
            await admin.remove_resource(zk, name, resource)
        return list(resources)

    _show_change(session, name, "removed", _ask(session, work))


def _ask(session: Session, work: Callable[[Any, Any], Awaitable[Any]], how: str = "connected") -> Any:
    # Imported by name, because the server packages are needed only here.
    try:
        admin = import_module("torrentdist.cluster.rebalance.group_administration")
        configure_logs = import_module("torrentdist.host.process.logs").configure_logs
    except ModuleNotFoundError as exc:
        detail = f"group commands need {exc.name}, which is not installed"
        raise TorrentdistError("missing_dependency", detail=detail, package="torrentdist[server]") from None
    config = session.config()
    configure_logs(msgspec.structs.replace(config.log, level="info" if session.verbose else "warning"), role="group")
    return run(getattr(admin, how)(config.zookeeper, lambda zk: work(admin, zk)))


def _show_change(session: Session, name: str, verb: str, changed: list[str]) -> None:
    view = GroupChangeView(group=name, changed=changed)
    told = f"{verb} {len(changed)} in {name}" if changed else f"nothing to be {verb} in {name}"
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
