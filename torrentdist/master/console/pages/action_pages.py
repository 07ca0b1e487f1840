"""Changes from the console: each has a page that says what it does and asks, and a form that does
it.

Always: a change is made by the operation of the API, with its role, its pattern and its audit; a
form that is sent twice changes once.
Never: change anything on a GET.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Handler, Operation, standing_for
from torrentdist.host.http.web import json_response
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_markup import Markup, Visit
from torrentdist.master.console.visits import MOST_FORM_BYTES, Visits, form_of, wants_page
from torrentdist.model import ids
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.wire.headers import REQUEST_ID
from torrentdist.model.wire.view import View
from torrentdist.security.authorization import may_change, may_use
from torrentdist.security.principal import Role

PARAMETERS = {"bundles": "id", "jobs": "job", "hosts": "supervisor", "masters": "master"}
_CHECKED = {"bundles": ids.bundle_id, "jobs": ids.job_id, "hosts": ids.supervisor_id, "masters": ids.master_id}
"""The name of the path's parameter on each kind of page."""


@dataclass(frozen=True)
class Action:
    kind: str
    name: str
    request: str
    """Method and path of the API's operation."""
    role: Role
    effect: str
    command: str
    """The command that does the same, with `{}` for the subject."""
    wait: bool = False
    """Whether the form asks for seconds to wait."""
    labels: bool = False
    """Whether the form asks for labels of hosts."""


ACTIONS = (
    Action("bundles", "distribute", "POST /v1/bundles/{id}/distribute", Role.UPLOADER,
           "Hosts are told to fetch and keep it: all, or those with the labels.",
           "torrentdist bundle distribute {}", labels=True),
    Action("bundles", "pin", "PUT /v1/bundles/{id}/pin", Role.OPERATOR,
           "It is never removed, nor dropped for room.", "torrentdist bundle pin {}"),
    Action("bundles", "unpin", "DELETE /v1/bundles/{id}/pin", Role.OPERATOR,
           "It may be removed, and dropped for room.", "torrentdist bundle unpin {}"),
    Action("bundles", "remove", "DELETE /v1/bundles/{id}", Role.OPERATOR,
           "It is removed from every master and host. Its id is never used again for other content.",
           "torrentdist bundle rm {}"),
    Action("jobs", "activate", "POST /v1/jobs/{job}/activate", Role.SUBMITTER,
           "Its workers run.", "torrentdist job activate {}"),
    Action("jobs", "deactivate", "POST /v1/jobs/{job}/deactivate", Role.SUBMITTER,
           "Its workers stop and keep their places.", "torrentdist job deactivate {}"),
    Action("jobs", "rebalance", "POST /v1/jobs/{job}/rebalance", Role.SUBMITTER,
           "Its workers are spread anew.", "torrentdist job rebalance {}", wait=True),
    Action("jobs", "kill", "DELETE /v1/jobs/{job}", Role.SUBMITTER,
           "Its workers stop now, and it is removed after the wait.", "torrentdist job kill {}", wait=True),
    Action("hosts", "drain", "PUT /v1/supervisors/{supervisor}/drain", Role.OPERATOR,
           "It gets no new workers, and those it has move away.", "torrentdist supervisor drain {}"),
    Action("hosts", "undrain", "DELETE /v1/supervisors/{supervisor}/drain", Role.OPERATOR,
           "It gets workers again.", "torrentdist supervisor undrain {}"),
    Action("hosts", "forget", "DELETE /v1/presence/{id}", Role.OPERATOR,
           "It is missed no longer. If it returns, it is known again.", "torrentdist host forget {}"),
    Action("masters", "forget", "DELETE /v1/presence/{id}", Role.OPERATOR,
           "It is missed no longer. If it returns, it is known again.", "torrentdist host forget {}"),
    Action("masters", "transfer", "POST /v1/transfer", Role.OPERATOR,
           "It leads, as soon as it is ready.", "torrentdist ha transfer {}"),
)  # fmt: skip


class ActionView(View, frozen=True, kw_only=True):
    """What a change from the console would do."""

    action: str
    subject: str
    effect: str
    role: str
    command: str
    allowed: bool
    """Whether the sender's role allows it."""


class ActionPages:
    """`api`: the operations that make the changes."""

    def __init__(self, visits: Visits, api: Iterable[Operation]) -> None:
        self._visits = visits
        self._api = {operation.request: operation for operation in api}

    def operations(self) -> Iterator[Operation]:
        for kind, parameter in PARAMETERS.items():
            path = f"/ui/{kind}/{{{parameter}}}/{{action}}"
            asks = _named(self._asking(kind), f"ask_{kind}")
            yield Operation("GET", path, asks, ActionView, "what a change would do, and a form", Role.READER)
        for action in ACTIONS:
            operation = self._api[action.request]
            yield Operation(
                "POST",
                f"/ui/{action.kind}/{{{PARAMETERS[action.kind]}}}/{action.name}",
                _named(self._doing(action, operation), f"console_{action.name}_{action.kind}"),
                operation.answer,
                f"the same as {action.request}, from a form of the console",
                action.role,
                max_body=MOST_FORM_BYTES,
                changes=True,
                target=operation.target,
            )

    def _asking(self, kind: str) -> Handler:
        async def ask(request: Request) -> Response:
            subject = str(_CHECKED[kind](request.path_params[PARAMETERS[kind]]))
            wanted = request.path_params["action"]
            action = next((a for a in ACTIONS if (a.kind, a.name) == (kind, wanted)), None)
            if action is None:
                raise TorrentdistError("not_found", what=request.url.path[:200])
            sender = principal_of(request)
            view = ActionView(
                action=action.name,
                subject=subject,
                effect=action.effect,
                role=action.role,
                command=action.command.format(subject),
                allowed=may_use(sender, action.role),
            )
            if wants_page(request.headers, request.url.query):
                return HTMLResponse(action_html(self._visits.of(request), action, view))
            return json_response(view)

        return ask

    def _doing(self, action: Action, operation: Operation) -> Handler:
        async def act(request: Request) -> Response:
            fields = await form_of(request)
            self._visits.sessions.expect_own_form(request, fields)
            subject = request.path_params[PARAMETERS[action.kind]]
            query = urlencode({"wait": fields["wait"]}) if action.wait and fields.get("wait") else ""
            given = {REQUEST_ID: fields["request_id"]} if fields.get("request_id") else {}
            made = standing_for(request, operation, query=query, headers=given, body=_body(action, subject, fields))
            response = await operation.handler(made)
            if wants_page(request.headers, request.url.query):
                gone = action.name in ("remove", "forget")
                back = f"/ui/{action.kind}" if gone else m.address(action.kind, subject)
                return RedirectResponse(back, 303)
            return response

        return act


def _named(handler: Handler, name: str) -> Handler:
    """The name of a handler is that of its operation in the description of the API."""
    handler.__name__ = name
    return handler


def _body(action: Action, subject: str, fields: dict[str, str]) -> bytes:
    """Returns the JSON body that the API's operation expects."""
    if action.name == "transfer":
        return msgspec.json.encode({"master": subject})
    if not action.labels:
        return b""
    labels = {}
    for pair in fields.get("labels", "").split():
        name, equals, value = pair.partition("=")
        if not equals:
            raise TorrentdistError("invalid_request", detail=f"{pair[:100]!r} is no label NAME=VALUE")
        labels[name] = value
    return msgspec.json.encode({"labels": labels})


def action_links(visit: Visit, kind: str, subject: str, possible: Collection[str], bundle: str = "") -> Markup:
    """Returns the links to the changes of one thing that its state and the sender's role allow.
    `possible`: the names of those that apply to its state. `bundle`: the bundle that the sender's
    pattern must match."""
    allowed = [
        action
        for action in ACTIONS
        if action.kind == kind
        and action.name in possible
        and may_use(visit.sender, action.role)
        and may_change(visit.sender, [bundle])
    ]
    if not allowed:
        return m.NOTHING
    links = (m.link(f"/ui/{kind}/{quote(subject, safe='')}/{action.name}", action.name) for action in allowed)
    return Markup(f'<nav class="actions" aria-label="Changes">{m.join(links)}</nav>')


def action_html(visit: Visit, action: Action, view: ActionView) -> str:
    back = m.link(m.address(action.kind, view.subject), "Back")
    said = Markup(f"<p>{m.text(view.effect)}</p>")
    if not view.allowed:
        form = Markup(f'<p class="notice warn">It needs the role {m.text(view.role)}.</p>')
    elif not visit.leads:
        leader = m.text("Nobody leads just now.")
        if visit.leader_url:
            leader = m.link(f"{visit.leader_url}{visit.path}", f"Open this page at the leader, {visit.leader}")
        form = Markup(f'<p class="notice warn">This master does not lead, and only the leader changes. {leader}</p>')
    else:
        inputs = m.NOTHING
        if action.wait:
            inputs = Markup('<label>Seconds to wait <input name="wait" inputmode="decimal" value="0"></label>')
        if action.labels:
            inputs = Markup('<label>Labels, NAME=VALUE; none: every host <input name="labels"></label>')
        form = Markup(
            f'<form method="post" class="confirm">{m.hidden("form_key", visit.form_key)}'
            f"{m.hidden('request_id', secrets.token_hex(16))}{inputs}"
            f"<button>Yes, {m.text(action.name)} {m.text(view.subject)}</button> {back}</form>"
        )
    return m.page(
        visit, f"{action.name} {view.subject}?", said, form, m.section("The same by hand", m.command(view.command))
    )
