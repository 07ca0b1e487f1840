"""`torrentdist bundle retention`: how many versions of a bundle the cluster keeps."""

from collections.abc import Sequence

import click

from torrentdist.client.masters import policy_client
from torrentdist.model.policies.policy_messages import RetentionView
from torrentdist.model.policies.why_it_stays import in_words
from torrentdist.model.wording import counted
from torrentdist_cli.frame.asking_masters import ask_masters
from torrentdist_cli.frame.command import Command, dry_run_option
from torrentdist_cli.frame.invocation import Session
from torrentdist_cli.frame.rendering import grid, show, show_all
from torrentdist_cli.frame.units import DURATION, duration


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
