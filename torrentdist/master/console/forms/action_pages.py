"""Changes from the console: each has a page that says what it does and asks, and a form that does
it.

Always: a change is made by the operation of the API, with its role, its pattern and its audit; a
form that is sent twice changes once.
Never: change anything on a GET.
"""

from collections.abc import Iterable, Iterator
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from torrentdist.host.http.authentication import principal_of
from torrentdist.host.http.operation import Handler, Operation, standing_for
from torrentdist.host.http.web import json_response
from torrentdist.master.console import console_markup as m
from torrentdist.master.console.console_sight import ConsoleSight
from torrentdist.master.console.forms.action_forms import (
    LOOK,
    ActionView,
    DistributionOutlook,
    action_html,
    command_line,
    fields_again,
    outlook,
)
from torrentdist.master.console.forms.actions import (
    ACTIONS,
    CHECKED,
    GOES,
    LISTS_ALONE,
    PARAMETERS,
    Action,
    action_of,
)
from torrentdist.master.console.forms.form_fields import Fields, distribute_body
from torrentdist.master.console.visits import MOST_FORM_BYTES, Visits, form_of, wants_page
from torrentdist.master.http.routes import records_for
from torrentdist.master.policies.distribution_orders import order_of, record_of
from torrentdist.model import ids
from torrentdist.model.errors import required
from torrentdist.model.wire.headers import REQUEST_ID
from torrentdist.security.authorization import Role, may_use


class ActionPages:
    """`api`: the operations that make the changes."""

    def __init__(self, visits: Visits, sight: ConsoleSight, api: Iterable[Operation]) -> None:
        self._visits = visits
        self._sight = sight
        self._api = {operation.request: operation for operation in api}

    def operations(self) -> Iterator[Operation]:
        again = "the form of a distribution, with what the last one asked for"
        yield Operation("GET", "/ui/bundles/{id}/repeat", self.repeat, None, again, Role.READER, statuses=(303,))
        for kind, parameter in PARAMETERS.items():
            path = f"/ui/{kind}/{{{parameter}}}/{{action}}"
            asks = _named(self._asking(kind), f"ask_{kind}")
            yield Operation("GET", path, asks, ActionView, "what a change would do, and a form", Role.READER)
        for action in ACTIONS:
            operation = self._api[action.request]
            yield Operation(
                "POST",
                f"/ui/{action.kind}/{{{PARAMETERS[action.kind]}}}/{action.name}",
                _named(self._doing(action, operation), f"console_{action.kind}_{action.name}"),
                operation.answer,
                f"the same as {action.request}, from a form of the console",
                action.role,
                max_body=MOST_FORM_BYTES,
                changes=True,
                target=operation.target,
            )

    async def repeat(self, request: Request) -> Response:
        bundle, seen = ids.bundle_id(request.path_params["id"]), records_for(request, self._sight.records)
        known = required(seen.distributions.get(bundle), "not_found", what=f"a distribution of bundle {bundle!r}")
        form = f"{m.address('bundles', bundle)}/distribute"
        return RedirectResponse(f"{form}?{urlencode(fields_again(seen, known.record))}", 303)

    def _asking(self, kind: str) -> Handler:
        async def ask(request: Request) -> Response:
            subject = str(CHECKED[kind](request.path_params[PARAMETERS[kind]]))
            action = required(action_of(kind, request.path_params["action"]), "not_found", what=request.url.path[:200])
            given = {field.name: request.query_params.get(field.name, "") for field in action.inputs}
            looks = LOOK in request.query_params or not wants_page(request.headers, request.url.query)
            plan = self._outlook(request, subject, given) if action.name == "distribute" and looks else None
            sender = principal_of(request)
            view = ActionView(
                action=action.name,
                subject=subject,
                effect=action.effect,
                role=action.role,
                command=command_line(action, subject, given),
                allowed=may_use(sender, action.role),
                outlook=plan,
            )
            if wants_page(request.headers, request.url.query):
                return HTMLResponse(action_html(self._visits.of(request), action, view, given))
            return json_response(view)

        return ask

    def _outlook(self, request: Request, subject: str, given: Fields) -> DistributionOutlook:
        bundle, seen = ids.bundle_id(subject), records_for(request, self._sight.records)
        record = record_of(seen, order_of(bundle, distribute_body(given), ""), 0.0)
        return outlook(record, self._sight.progress(seen, bundle, record.hosts))

    def _doing(self, action: Action, operation: Operation) -> Handler:
        async def act(request: Request) -> Response:
            fields = await form_of(request)
            self._visits.sessions.expect_own_form(request, fields)
            subject = request.path_params[PARAMETERS[action.kind]]
            query, body = action.asked(subject, fields)
            given = {REQUEST_ID: fields["request_id"]} if fields.get("request_id") else {}
            made = standing_for(request, operation, query=urlencode(query), headers=given, body=body)
            response = await operation.handler(made)
            if wants_page(request.headers, request.url.query):
                is_alone = action.name not in GOES and action.kind not in LISTS_ALONE
                back = m.address(action.kind, subject) if is_alone else f"/ui/{action.kind}"
                said = self._visits.said_query(request, action, fields.get("pattern") or subject)
                return RedirectResponse(f"{back}?{said}", 303)
            return response

        return act


def _named(handler: Handler, name: str) -> Handler:
    """The name of a handler is that of its operation in the description of the API."""
    handler.__name__ = name
    return handler
