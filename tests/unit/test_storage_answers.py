"""What the plug-in `fs` and uploads make of the answers of WebHDFS, without one. tests/engines has
the real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from torrentdist.model.storage_answers import bound_requests, past_old_connections, reason_of


class Refusal(Exception):
    def __init__(self, body: Any) -> None:
        super().__init__("403 Client Error")
        self.response = self
        self._body = body

    def json(self) -> Any:
        return self._body


class Answer:
    def __init__(self, status: int) -> None:
        self.status = status

    def raise_for_status(self) -> None:
        if self.status >= 400:
            raise Refusal({"RemoteException": {"exception": "RetriableException", "message": "starting"}})


class Session:
    def request(self, url: str, timeout: float | None = None) -> tuple[str, float | None]:
        return url, timeout

    def get(self, url: str) -> Answer:
        return Answer(int(url.rpartition("/")[2]))


class Storage:
    def __init__(self) -> None:
        self.session = Session()


def test_the_reason_in_the_body_of_a_refusal_is_told() -> None:
    """If this fails, a user whose quota is reached reads of a bare 403."""
    body = {"RemoteException": {"exception": "NSQuotaExceededException", "message": "The quota is exceeded"}}

    assert reason_of(Refusal(body)) == "NSQuotaExceededException: The quota is exceeded (Refusal: 403 Client Error)"


def test_other_bodies_hide_no_error() -> None:
    """If this fails, a strange body replaces the failure by one of ours."""
    bodies: list[Any] = [None, [], {}, {"RemoteException": None}, {"RemoteException": {}}]
    for body in bodies:
        assert reason_of(Refusal(body)) == "Refusal: 403 Client Error"
    assert reason_of(OSError("gone")) == "OSError: gone"


def test_requests_get_a_timeout() -> None:
    """If this fails, a fetch waits for ever for a DataNode that says nothing."""
    storage = Storage()
    bound_requests(storage, 3.0)
    bound_requests(object(), 3.0)

    assert storage.session.request("http://w1:9864/") == ("http://w1:9864/", 3.0)


def test_what_a_datanode_refuses_is_no_content() -> None:
    """If this fails, the text of an error is taken for a file's bytes."""
    storage = Storage()
    bound_requests(storage, 3.0)

    assert storage.session.get("http://w1:9864/200").status == 200
    with pytest.raises(Refusal) as failure:
        storage.session.get("http://w1:9864/403")
    assert "RetriableException: starting" in reason_of(failure.value)


def _failing(times: int, error: Exception) -> Callable[[], str]:
    """Returns an operation that raises the error so often, and then answers."""
    failures = iter([error] * times)

    def operation() -> str:
        for failure in failures:
            raise failure
        return "there"

    return operation


def test_old_connections_of_datanodes_fail_nothing() -> None:
    """If this fails, an upload after a restart of the NameNode fails once for each DataNode."""
    ended = {"exception": "EOFException", "message": "End of File Exception between w1 and head"}
    broken = {"exception": "IOException", "message": "Failed on local exception: java.io.IOException: Broken pipe"}
    for told in (ended, broken):
        refusal = Refusal({"RemoteException": told})
        assert past_old_connections(_failing(3, refusal)) == "there"
        assert past_old_connections(_failing(3, RuntimeError(told["message"]))) == "there"
        with pytest.raises(Refusal):
            past_old_connections(_failing(1000, refusal))


def test_other_failures_are_not_repeated() -> None:
    """If this fails, a refused permission is asked for twenty times."""
    with pytest.raises(PermissionError):
        past_old_connections(_failing(1, PermissionError("no")))
