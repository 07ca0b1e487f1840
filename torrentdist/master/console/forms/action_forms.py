"""The forms of changes, the links that lead to them, and what a distribution would do before it
begins.

Pure: values in, HTML out.

Always: a distribution says what it will do before its button is there.
"""

import secrets
import shlex
from collections.abc import Collection, Iterable
from urllib.parse import urlencode

from msgspec.structs import replace

from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_markup import Field, Markup, Visit
from torrentdist.master.console.forms.actions import ACTIONS, DISTRIBUTION, LISTS_ALONE, Action
from torrentdist.master.console.forms.form_fields import Fields
from torrentdist.master.policies.distribution_changes import with_labels
from torrentdist.master.policies.wave_plan import waves
from torrentdist.model.policies.distribution_record import DistributionRecord
from torrentdist.model.wire.fleet_messages import HostProgress, HostState
from torrentdist.model.wire.view import View
from torrentdist.model.wording import counted
from torrentdist.security.authorization import may_change, may_use

MOST_NAMES = 4_000
"""Most characters of hosts' names in an address."""


class DistributionOutlook(View, frozen=True, kw_only=True):
    """What a distribution would do now."""

    hosts: int
    have_it: int
    """The hosts that have it all."""
    bytes: int
    """The bytes that the other hosts lack."""
    waves: int


def outlook(record: DistributionRecord, progress: Iterable[HostProgress]) -> DistributionOutlook:
    """`progress`: how far each host of the record is."""
    hosts = list(progress)
    lacking = [host for host in hosts if host.state is not HostState.DONE]
    return DistributionOutlook(
        hosts=len(hosts),
        have_it=len(hosts) - len(lacking),
        bytes=sum(host.size - host.done for host in lacking),
        waves=len(waves(record)) if record.hosts else 0,
    )


def outlook_words(plan: DistributionOutlook) -> str:
    if not plan.hosts:
        return "No host is meant."
    in_waves = f", in {counted(plan.waves, 'wave')}" if plan.waves > 1 else ""
    have = f" Already there: {counted(plan.have_it, 'host')}." if plan.have_it else ""
    return f"It tells {counted(plan.hosts, 'host')}{in_waves}.{have} To move: {m.bytes_of(plan.bytes)} at most."


def fields_again(seen: ClusterSnapshot, record: DistributionRecord) -> Fields:
    """Returns the fields of the form that asks for the same distribution again: for the same hosts,
    if their names fit into an address."""
    names = ""
    if set(record.hosts) != set(with_labels(seen, record.labels)):
        names = " ".join(host for host in record.hosts if host in seen.supervisors)
    given = {
        "supervisors": names if len(names) <= MOST_NAMES else "",
        "labels": " ".join(f"{name}={value}" for name, value in sorted(record.labels.items())),
        "canary": str(record.canary),
        "concurrency": str(record.concurrency),
        "rate": str(record.terms.rate),
        "priority": record.terms.priority.value,
        "keep": f"{record.ends_at - record.begun_at:.0f}" if record.ends_at is not None else "0",
    }
    usual = {field.name: str(field.value) for field in DISTRIBUTION}
    return {name: value for name, value in given.items() if value != usual[name]}


LOOK = "look"
"""The field of a form that asks what a change would do."""


class ActionView(View, frozen=True, kw_only=True):
    """What a change from the console would do."""

    action: str
    subject: str
    effect: str
    role: str
    command: str
    allowed: bool
    """Whether the sender's role allows it."""
    outlook: DistributionOutlook | None = None
    """What a distribution would do now. Null: it is another change."""


def action_html(visit: Visit, action: Action, view: ActionView, given: Fields) -> str:
    """`given`: what the form's fields say; an empty one says what is usual."""
    is_listed = action.kind in LISTS_ALONE
    back = m.link(f"/ui/{action.kind}" if is_listed else m.address(action.kind, view.subject), "Back")
    said = Markup(f"<p>{m.text(view.effect)}</p>")
    if not view.allowed:
        form = Markup(f'<p class="notice warn">It needs the role {m.text(view.role)}.</p>')
    elif not visit.leads:
        leader = m.text("Nobody leads just now.")
        if visit.leader_url:
            leader = m.link(f"{visit.leader_url}{visit.path}", f"Open this page at the leader, {visit.leader}")
        form = Markup(f'<p class="notice warn">This master does not lead, and only the leader changes. {leader}</p>')
    elif action.name == "distribute" and view.outlook is None:
        form = _looking_form(action, given, back)
    else:
        form = _changing_form(visit, action, view, given, back)
    return m.page(
        visit, f"{action.name} {view.subject}?", said, form, m.section("The same by hand", m.command(view.command))
    )


def _looking_form(action: Action, given: Fields, back: Markup) -> Markup:
    """Returns the first of two steps: it asks what a change would do."""
    inputs = m.inputs(_filled(action, given))
    return Markup(
        f'<form method="get" class="confirm">{inputs}{m.hidden(LOOK, "1")}<button>See what it does</button>'
        f" {back}</form>"
    )


def _changing_form(visit: Visit, action: Action, view: ActionView, given: Fields, back: Markup) -> Markup:
    said, shown = m.NOTHING, m.inputs(_filled(action, given))
    if view.outlook is not None:
        chosen = {name: value for name, value in given.items() if value}
        said = Markup(f'<p class="notice" role="status">{m.text(outlook_words(view.outlook))}</p>')
        shown = m.join([m.hidden(name, value) for name, value in chosen.items()])
        form = f"{m.address(action.kind, view.subject)}/{action.name}"
        back = m.join([m.link(f"{form}?{urlencode(chosen)}", "Change it"), back], " ")
    return Markup(
        f'{said}<form method="post" class="confirm">{m.hidden("form_key", visit.form_key)}'
        f"{m.hidden('request_id', secrets.token_hex(16))}{shown}"
        f"<button>Yes, {m.text(action.name)} {m.text(view.subject)}</button> {back}</form>"
    )


def _filled(action: Action, given: Fields) -> list[Field]:
    return [replace(field, value=given.get(field.name) or field.value) for field in action.inputs]


def command_line(action: Action, subject: str, given: Fields) -> str:
    """Returns the command that does what the form with these fields does."""
    parts = [action.command.format(shlex.quote(subject))]
    for name, value in given.items():
        if name == "labels":
            parts += [f"--label {shlex.quote(label)}" for label in value.split()]
        elif value and name != "pattern":
            parts.append(f"--{name.replace('_', '-')} {shlex.quote(','.join(value.split()))}")
    return " ".join(parts)


def action_links(visit: Visit, kind: str, subject: str, possible: Collection[str], bundle: str = "") -> Markup:
    """Returns the links to the changes of one thing that its state and the sender's role allow.
    `possible`: the names of those that apply to its state. `bundle`: the bundle that the sender's
    pattern must match."""
    names = [action.name for action in allowed(visit, kind, possible, bundle)]
    if "repeat" in possible and "distribute" in names:
        names.append("repeat")
    links = [m.link(f"{m.address(kind, subject)}/{name}", name) for name in names]
    if not links:
        return m.NOTHING
    return Markup(f'<nav class="actions" aria-label="Changes of {m.text(subject)}">{m.join(links)}</nav>')


def allowed(visit: Visit, kind: str, possible: Collection[str], bundle: str = "") -> list[Action]:
    return [
        action
        for action in ACTIONS
        if action.kind == kind
        and action.name in possible
        and may_use(visit.sender, action.role)
        and may_change(visit.sender, [bundle])
    ]
