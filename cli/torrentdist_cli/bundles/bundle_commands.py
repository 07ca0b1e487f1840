"""`torrentdist bundle`: lists, shows, pins and removes the cluster's bundles.

`distribute`, `verify`, `diff` and `prune` have files of their own.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click
import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, bundle_id
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist_cli.frame.asking_masters import ask_masters
from torrentdist_cli.frame.command import Command, Group, Lazy, Session, dry_run_option
from torrentdist_cli.frame.rendering import duration, facts, grid, show, show_all, size
from torrentdist_cli.frame.watching import watch, watch_option
from torrentdist_cli.shell.candidates import bundle_ids

if TYPE_CHECKING:
    from torrentdist.client.masters.master_client import MasterClient

COMMANDS = {
    "distribute": Lazy("bundles.distribute_command", "Bring a bundle to every host, and watch it arrive."),
    "history": Lazy(
        "bundles.distribute_command", "Show what distributions did, of one bundle or of all, the newest first."
    ),
    "sign": Lazy("bundles.sign_command", "Sign a bundle that is in the cluster."),
    "verify": Lazy("bundles.verify_command", "Compare a directory or a file with a bundle, byte by byte."),
    "diff": Lazy("bundles.verify_command", "Show what changes from bundle A to bundle B."),
    "wait": Lazy(
        "bundles.distribute_command", "Wait until the hosts that were told to keep a bundle have it.", "wait_command"
    ),
    "cancel": Lazy("bundles.distribute_command", "End the distribution of a bundle, or a standing order."),
    "distributions": Lazy(
        "bundles.distribute_command",
        "List the distributions that are under way, and those that ended in the last 7 days.",
    ),
    "retention": Lazy(
        "bundles.retention_command", "Keep the newest bundles that match GLOB, and let the leader remove the others."
    ),
    "prune": Lazy("bundles.retention_command", "Drop bundles that nothing on this host needs."),
}


@click.group(cls=Group, lazy=COMMANDS)
def bundle() -> None:
    """Distribute, list, check, pin and remove bundles."""


@bundle.command(cls=Command)
def ls(session: Session) -> None:
    """List the bundles.

    Where bundles share blocks on the disk of the master that answers, OWN is the part of a bundle
    that shares none.

    With -q: their ids.
    """
    views = ask_masters(session, lambda client: client.bundles())
    show_all(session, views, value=lambda view: view.id, table=lambda: _list_table(views))


@bundle.command(name="show", cls=Command)
@click.argument("id", shell_complete=bundle_ids)
@watch_option
def show_bundle(session: Session, id: str, watches: bool) -> None:
    """Show one bundle.

    With -q: its digest.
    """
    name = bundle_id(id)

    def picture(view: BundleView) -> str:
        return _one_table(view, _trust(session, view))

    def tell(view: BundleView) -> None:
        show(session, view, value=view.digest, table=lambda: picture(view))

    if watches:
        watch(session, lambda client: client.bundle(name), picture, tell)
    else:
        tell(ask_masters(session, lambda client: client.bundle(name)))


@bundle.command(cls=Command)
@click.argument("id", shell_complete=bundle_ids)
@dry_run_option
def rm(session: Session, id: str) -> None:
    """Remove a bundle from the whole cluster; exit 9 if it is pinned or in use.

    Where pods have it mounted, their hosts keep its content until the last of them has ended.

    With -q: its id.
    """
    name = bundle_id(id)
    view = ask_masters(session, lambda client: _remove(client, name))
    done = session.told("removed", "would be removed")
    show(session, view, value=view.id, table=lambda: "\n".join([f"{view.id} {done}", *_kept_for(view)]))


async def _remove(client: "MasterClient", name: BundleId) -> BundleView:
    """Removes a bundle. The view says who has it mounted, which only hosts know."""
    used_by: dict[str, list[str]] = {}
    with suppress(TorrentdistError):  # One whose upload is not complete can be removed, too.
        used_by = (await client.bundle(name)).used_by
    return msgspec.structs.replace(await client.remove(name), used_by=used_by)


def _kept_for(view: BundleView) -> list[str]:
    return [
        f"{host} keeps its content until these have ended: {', '.join(users)}" for host, users in view.used_by.items()
    ]


@bundle.command(cls=Command)
@click.argument("id", shell_complete=bundle_ids)
@dry_run_option
def pin(session: Session, id: str) -> None:
    """Keep a bundle: it is neither removed nor pruned until it is unpinned.

    With -q: its id.
    """
    _change(session, id, lambda client, name: client.pin(name), "pinned")


@bundle.command(cls=Command)
@click.argument("id", shell_complete=bundle_ids)
@dry_run_option
def unpin(session: Session, id: str) -> None:
    """Remove the pin from a bundle.

    With -q: its id.
    """
    _change(session, id, lambda client, name: client.unpin(name), "unpinned")


Call = Callable[["MasterClient", BundleId], Awaitable[BundleView]]


def _change(session: Session, id: str, call: Call, done: str) -> None:
    name = bundle_id(id)
    view = ask_masters(session, lambda client: call(client, name))
    show(session, view, value=view.id, table=lambda: f"{view.id} {session.told(done, f'would be {done}')}")


def _list_table(views: Sequence[BundleView]) -> str:
    now = time.time()
    shares = any(view.own_bytes not in (None, view.size) for view in views)
    return grid(
        ("ID", "STATE", "SIZE", *(["OWN"] if shares else []), "FILES", "REPLICAS", "AGE", "PINNED", "DIGEST"),
        [
            (
                view.id,
                view.state.value,
                size(view.size),
                *(["" if view.own_bytes is None else size(view.own_bytes)] if shares else []),
                str(view.files),
                f"{view.replicas}/{view.min_replicas}",
                duration(max(0.0, now - view.created_at) if view.age_secs is None else view.age_secs),
                "yes" if view.pinned else "",
                view.digest[:12],
            )
            for view in views
        ],
        right=("SIZE", *(["OWN"] if shares else []), "FILES", "REPLICAS", "AGE"),
    )


def _trust(session: Session, view: BundleView) -> str:
    """Says what this client's [trust] makes of the signatures; empty where it does not look."""
    from torrentdist.client.bundles.signed_content import check_signatures

    try:
        checked = check_signatures(session.config().trust, view.id, view.digest, view.signatures)
    except TorrentdistError as error:
        return f"refused: {error.message}"
    return checked.warning or (f"verified: {', '.join(checked.signers)}" if checked.signers else "")


def _one_table(view: BundleView, trust: str) -> str:
    created = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.created_at))
    return facts(
        [
            ("id", view.id),
            ("digest", view.digest),
            ("state", view.state.value),
            ("size", f"{size(view.size)} ({view.size} bytes)"),
            ("files", str(view.files)),
            ("replicas", f"{view.replicas} of {view.min_replicas} wanted"),
            ("holders", ", ".join(view.holders) or "none"),
            ("created", created),
            ("pinned", "yes" if view.pinned else "no"),
            ("signed by", ", ".join(view.signers) or "nobody"),
            *([("trust", trust)] if trust else []),
            *(("used by", f"{host}: {', '.join(users)}") for host, users in view.used_by.items()),
            *(("stuck", f"{host}: {reason}") for host, reason in view.stuck.items()),
        ]
    )
