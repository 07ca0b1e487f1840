"""`torrentdist bundle retention` and `prune`: how many versions of a bundle the cluster keeps,
and the removal of what nobody uses, on this host or in the whole cluster.
"""

from collections.abc import Sequence

import click

from torrentdist.client.masters import policy_client
from torrentdist.http.api_calls import Broken, Request, ask
from torrentdist.http.connection_pool import Http
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.policies.policy_messages import RetentionView
from torrentdist.model.policies.why_it_stays import in_words
from torrentdist.model.wire.bundle_messages import PruneView, UnusedView
from torrentdist.model.wording import counted
from torrentdist_cli.frame.asking_masters import ask_masters, run
from torrentdist_cli.frame.command import Command, Session, dry_run_option
from torrentdist_cli.frame.rendering import DURATION, duration, grid, show, show_all, size


@click.command(cls=Command)
@click.argument("pattern", metavar="GLOB", required=False)
@click.option("--keep", type=click.IntRange(1), help="Number of newest matching bundles to keep.")
@click.option("--for", "for_secs", type=DURATION, default="0", help="Those younger than this stay too, such as 30d.")
@click.option("--remove", is_flag=True, help="End the rule.")
@dry_run_option
def retention(session: Session, pattern: str | None, keep: int | None, for_secs: float, remove: bool) -> None:
    """Keep the newest bundles that match GLOB, and let the leader remove the others.

    Without GLOB: list the rules. A bundle that is pinned, being distributed or needed by a live job
    stays, and so does one that another rule keeps. With --remove, nothing is removed for this rule
    any more; exit 3 if there is none.

    With -q: the bundles that go.
    """
    if pattern is None:
        if keep is not None or remove or session.dry_run:
            raise click.UsageError("give the pattern of the bundles, such as 'etl-*'")
        rules = ask_masters(session, policy_client.retention_rules)
        show_all(session, rules, value=lambda rule: rule.pattern, table=lambda: _list(rules))
        return
    if remove == (keep is not None):
        raise click.UsageError("give either --keep or --remove")
    if keep is None:
        view = ask_masters(session, lambda client: policy_client.remove_retention(client, pattern))
        verb = "would end" if session.dry_run else "has ended"
        show(session, view, value=view.pattern, table=lambda: f"the rule for {view.pattern} {verb}")
        return
    count = keep
    view = ask_masters(session, lambda client: policy_client.put_retention(client, pattern, count, for_secs))
    show(session, view, value="\n".join(sorted(view.goes)), table=lambda: _one(view, session.dry_run))


def _list(rules: Sequence[RetentionView]) -> str:
    return grid(
        ("PATTERN", "KEEP", "FOR", "BUNDLES", "GO NEXT", "CREATED BY"),
        [
            (
                rule.pattern,
                str(rule.keep),
                duration(rule.for_secs) if rule.for_secs else "",
                str(rule.bundles),
                str(len(rule.goes)),
                rule.created_by,
            )
            for rule in rules
        ],
        right=("KEEP", "BUNDLES", "GO NEXT"),
    )


def _one(view: RetentionView, dry_run: bool) -> str:
    verb = "would go" if dry_run else "go"
    matching = counted(view.bundles, "bundle")
    sentence = f"{matching} with a name like {view.pattern}: {len(view.goes)} {verb}, {len(view.stays)} stay"
    rows = [(id_, "goes", why) for id_, why in sorted(view.goes.items())]
    rows += [(id_, "stays", in_words(why)) for id_, why in sorted(view.stays.items())]
    return f"{sentence}\n\n{grid(('BUNDLE', '', 'WHY'), rows)}" if rows else sentence


_WHY = {
    "pinned": "it is pinned",
    "assigned": "it is assigned to this host, or a worker here needs it",
    "in_use": "a user of this host waits for it, or it is being changed",
    "mounted": "a pod of this host has it mounted",
    "last_copy": "no live master has a copy",
    "assignment_unknown": "ZooKeeper has not said yet what this host was told to keep",
    "copies_unknown": "no master has said whether another copy exists",
    "used_lately": "it was used more recently than --older-than",
}
_SECS = 60.0
"""Deleting the files of many bundles precedes the answer."""


@click.command(cls=Command)
@click.option(
    "--older-than", type=DURATION, default="0", metavar="AGE", help="Only bundles unused for this long, such as 7d."
)
@click.option("--cluster", is_flag=True, help="Remove every unused bundle from the whole cluster.")
@dry_run_option
def prune(session: Session, older_than: float, cluster: bool) -> None:
    """Drop bundles that nothing on this host needs.

    Bundles that are assigned, pinned, in use or the last copy stay, and the answer says why. With
    --cluster: remove every bundle that is not pinned, not distributed to a host, and needed by no
    live job, as `bundle rm` does.

    With -q: the number of bytes freed.
    """
    if cluster:
        _prune_cluster(session, older_than)
        return
    view = run(_prune(session.config().client.supervisor, older_than, session.dry_run))
    verb = session.told("removed", "would remove")
    sentence = f"{verb} {counted(len(view.removed), 'bundle')}, {size(view.freed_bytes)}; kept: {view.kept}"
    show(session, view, value=str(view.freed_bytes), table=lambda: "\n".join([sentence, *_goes(view), *_stays(view)]))


def _goes(view: PruneView) -> list[str]:
    """Returns lines such as `etl-41 goes: 1.2 GiB, unused for 9d, 3 masters hold it`. A supervisor
    of an older release gives digests only."""
    told = {going.digest for going in view.goes}
    lines = [
        f"{', '.join(going.ids) or going.digest} goes: {size(going.size)}, unused for {duration(going.unused_secs)}, "
        f"{counted(going.copies_elsewhere, 'master')} {'holds' if going.copies_elsewhere == 1 else 'hold'} it"
        for going in view.goes
    ]
    return [*lines, *(digest for digest in view.removed if digest not in told)]


def _stays(view: PruneView) -> list[str]:
    """Returns lines such as `etl-42 stays: it is pinned; it was used lately`."""
    return [
        f"{', '.join(kept.ids) or kept.digest} stays: {'; '.join(_WHY.get(why, why) for why in kept.reasons)}"
        for kept in view.stays
    ]


def _prune_cluster(session: Session, older_than: float) -> None:
    request = Request("POST", "/v1/prune", params={"older_than": f"{older_than:g}"}, timeout=_SECS)
    view = ask_masters(session, lambda client: client.mutate(request, UnusedView))
    verb = session.told("removed", "would remove")
    sentence = f"{verb} {counted(len(view.removed) + view.more, 'bundle')}, {size(view.bytes)}; kept: {view.kept}"
    show(session, view, value=str(view.bytes), table=lambda: "\n".join([sentence, *_unused(view), *_kept(view)]))


def _unused(view: UnusedView) -> list[str]:
    rows = [(going.id, size(going.size), duration(going.unchanged_secs)) for going in view.goes]
    told = {going.id for going in view.goes}
    table = (
        [grid(("GOES: NOBODY USES IT", "SIZE", "UNCHANGED FOR"), rows, right=("SIZE", "UNCHANGED FOR"))] if rows else []
    )
    more = [f"and {view.more} more"] if view.more else []
    return [*table, *(id_ for id_ in view.removed if id_ not in told), *more]


def _kept(view: UnusedView) -> list[str]:
    rows = [(kept.id, in_words(kept.reasons)) for kept in view.stays]
    return [grid(("KEPT", "WHY"), rows)] if rows else []


async def _prune(url: str, older_than: float, dry_run: bool) -> PruneView:
    if not url:
        raise TorrentdistError(
            "config_missing", detail="client.supervisor is empty, but prune needs this host's supervisor"
        )
    params = {"older_than": str(older_than), "dry_run": "true" if dry_run else "false"}
    request = Request("POST", "/v1/host/prune", params=params, timeout=_SECS)
    async with Http() as http:
        try:
            return await ask(http, url.rstrip("/"), request, PruneView)
        except Broken as broken:
            raise TorrentdistError("supervisor_unreachable", url=url, detail=broken.detail) from broken
