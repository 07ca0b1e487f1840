"""Requests of schemathesis against the descriptions of a real master and a real gateway.

It sends valid and broken requests to each operation, as a stranger and with each role.
`make fuzz` sends more of them.
Always: no answer is an internal error, and each answer has a status and a body that the description
has. Always: a role is enough for an operation if and only if the table of roles says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from cluster_fixtures import Cluster, make_source, running_cluster
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from torrentdist.model.errors import ERRORS
from torrentdist.model.ids import JobId
from torrentdist.security.authorization import TOKEN_HOLDER as HOLDER_OF_ALL
from torrentdist.security.authorization import Principal, Proof, Role, may_use
from torrentdist.security.job_token import key_of, token_of_job
from torrentdist.security.tokens import ROLES

pytestmark = pytest.mark.case("F5")

EACH = int(os.environ.get("FUZZ_REQUESTS", "2"))
"""Requests to each operation, valid and broken ones, of each sender."""
trials = settings(
    max_examples=EACH, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
OF_ROLES = {"unauthorized", "role_needed", "hosts_only"}
BEFORE_ROLES = {"invalid_request", "not_ready", "not_found"}
"""Refusals of a head that is wrong, which come before the role is looked at."""
PARAMETERS = [
    "any", "bundle", "dry_run", "events", "follow", "for", "min_replicas", "n", "name", "nonce", "offset",
    "older_than", "pass", "port", "replicas", "stream", "supervisor", "timeout", "tracker", "unknown", "uploading",
    "url", "wait", "who", "within", "workers",
]  # fmt: skip
"""Query parameters, each of which is tried at every operation."""
BODIES = {"application/octet-stream": {"type": "string", "format": "binary"}}
WORDS = ["seen-1", "job-1", "supervisor-1", "master-1", "a-reader", "ab" * 32, "0", "-1", "1e999", "nan", "true"]
"""Values of parameters: what exists, and numbers at their limits."""
UNTRIED = ["/error/{code}/{sentence}", "/v1/transfer"]
"""The first answers with the status that its path names, and the second ends a leader."""
CONSOLE = "/ui/"
"""Pages for people, with streams that stay open; test_console.py tries them."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    work = tmp_path_factory.mktemp("guarded")
    with running_cluster(work=work, masters=1, supervisors=1) as cluster:
        cluster.upload(make_source(work / "source", 5, 5_000), "seen-1", 1)
        (work / "source" / "job.toml").write_text('name = "job-1"\ncommand = ["sleep", "600"]\n')
        cluster.run("job", "submit", work / "source").ok()
        cluster.run("bundle", "distribute", "seen-1", "--wait", "100%").ok()
        yield cluster


@pytest.fixture(scope="module")
def tokens(guarded: Cluster) -> dict[Role, str]:
    """A token for each role; a stranger has none, and the daemons' own stands for a host."""
    made = {role: guarded.run("token", "create", f"a-{role}", "--role", role.value).ok()["token"] for role in ROLES}
    shared = guarded.dev.headers()["Authorization"].removeprefix("Bearer ")
    (job,) = (job["id"] for job in guarded.run("job", "ls").ok())
    return {Role.ANYONE: "", Role.JOB: token_of_job(key_of(shared), JobId(job)), Role.HOST: shared, **made}


def described(document: dict[str, Any]) -> dict[str, Any]:
    """Returns the description with the values and the parameters that are to be tried."""
    word = {"anyOf": [{"enum": WORDS}, {"type": "string", "maxLength": 20}]}
    for path in [path for path in document["paths"] if path in UNTRIED or path.startswith(CONSOLE)]:
        del document["paths"][path]
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation["parameters"]:
                if parameter["in"] == "path":
                    parameter["schema"] = word
            known = [parameter["name"] for parameter in operation["parameters"]]
            operation["parameters"] += [
                {"name": name, "in": "query", "schema": word} for name in PARAMETERS if name not in known
            ]
    return document


def judge(role: Role, needed: Role, answer: Any) -> str:
    """Says what is wrong with an answer; empty if nothing is."""
    code = answer.json()["error"] if answer.status_code >= 400 and b'"error"' in answer.content else ""
    sender = HOLDER_OF_ALL if role is Role.HOST else Principal("x", role, Proof.TOKEN)
    if answer.status_code == 500 or code == "internal":
        return f"internal: {answer.text[:300]}"
    if code and answer.status_code not in (ERRORS[code].http_status, 405):
        return f"{code} with status {answer.status_code}"
    is_refused = code in OF_ROLES or (code in BEFORE_ROLES and not is_about_an_entry(answer))
    if (may_use(sender, needed) and code in OF_ROLES) or not (may_use(sender, needed) or is_refused):
        return f"{role} got {answer.status_code} {code}, and {needed} is needed"
    return ""


def is_about_an_entry(answer: Any) -> bool:
    """Whether a 404 says that something does not exist, and not that there is no such route."""
    body = answer.json()
    return bool(body["error"] == "not_found") and not body["fields"]["what"].startswith("/")


class Trial:
    """Sends each request of schemathesis as several senders, and keeps what is wrong with the
    answers.
    """

    def __init__(self, url: str, tokens: dict[Role, str]) -> None:
        self.wrong: dict[str, str] = {}
        self.sent = 0
        self._url = url
        self._sessions = {role: requests.Session() for role in tokens}
        for role, session in self._sessions.items():
            session.trust_env = False
            token = {"Authorization": f"Bearer {tokens[role]}"} if tokens[role] else {}
            session.headers.update({"X-Torrentdist": "1", **token})

    def run(self, document: dict[str, Any]) -> None:
        for found in schemathesis.openapi.from_dict(described(document)).get_all_operations():
            operation: Any = found.ok()  # type: ignore[union-attr]
            self._try(operation, st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in GenerationMode)))

    def _try(self, operation: Any, cases: st.SearchStrategy[Any]) -> None:
        needed = Role(operation.definition.raw["x-role"])

        @seed(0)
        @trials
        @given(cases)
        def trial(case: Any) -> None:
            for role, session in self._sessions.items():
                answer = case.call(base_url=self._url, session=session, timeout=20.0, allow_redirects=False)
                self.sent += 1
                if complaint := judge(role, needed, answer) or mismatch(case, answer):
                    said = f"{operation.label} by {role}: {complaint} ({case.as_curl_command()[:500]})"
                    self.wrong.setdefault(f"{operation.label} {complaint[:40]}", said)

        trial()


def mismatch(case: Any, answer: Any) -> str:
    """Says how an answer differs from its description; empty if it does not."""
    try:
        case.validate_response(answer, checks=CHECKS)
    except BaseExceptionGroup as found:
        return "; ".join(str(each)[:300] for each in found.exceptions)
    return ""


def test_a_master_answers_each_sender_as_it_says(guarded: Cluster, tokens: dict[Role, str]) -> None:
    """A request that nobody thought of would be a bug, or a way around the roles. It takes long:
    each operation is tried by each kind of sender."""
    trial = Trial(guarded.url("master-1"), tokens)
    trial.run(guarded.get("master-1", "/openapi.json"))

    assert not trial.wrong, "\n".join(trial.wrong.values())
    assert trial.sent > 300 * EACH
    assert "Traceback" not in (guarded.dir / "master-1.log").read_text()


def test_a_gateway_answers_each_sender_as_it_says(guarded: Cluster, tokens: dict[Role, str]) -> None:
    """A program of the host could end the gateway of all others, or a job get at another one. It
    takes long: each operation is tried by each kind of sender."""
    senders = {Role.OPERATOR: "", Role.JOB: tokens[Role.JOB]}
    trial = Trial(guarded.url("supervisor-1"), senders)
    trial.run(guarded.get("supervisor-1", "/openapi.json"))

    assert not trial.wrong, "\n".join(trial.wrong.values())
    assert trial.sent > 20 * EACH
    assert "Traceback" not in (guarded.dir / "supervisor-1.log").read_text()
