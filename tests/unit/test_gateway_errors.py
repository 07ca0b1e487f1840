"""How the gateway tells an error to each kind of client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from torrentdist.model.errors import ERRORS, TorrentdistError
from torrentdist.supervisor.gateway.bundle_server import on_bundle_error
from torrentdist.supervisor.gateway.gateway import error_answer
from torrentdist.supervisor.hub.hub_api import on_hub_error
from torrentdist.supervisor.images import registry_errors
from torrentdist.supervisor.images.registry_errors import HOW, RegistryError, is_registry, registry_answer, told_as
from torrentdist.supervisor.objects import s3_errors
from torrentdist.supervisor.objects.s3_errors import is_s3, s3_answer

pytestmark = pytest.mark.anyio


def error_of(code: str) -> TorrentdistError:
    """Makes an error with some value for each field of its sentence."""
    names = ("id", "detail", "what", "seconds", "name", "own", "count", "path", "needed", "free", "tag", "field")
    more = ("range", "size", "limit", "note", "kind", "reason", "text", "status")
    fields: dict[str, Any] = dict.fromkeys((*names, *more), 1)
    return TorrentdistError(code, **fields)


def asked(path: str, agent: str = "", **scope: Any) -> Request:
    headers = [(b"user-agent", agent.encode()), (b"host", b"g")]
    return Request({"type": "http", "method": "GET", "path": path, "headers": headers, "query_string": b"", **scope})


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("bundle_not_found", ("NoSuchBucket", 404)), ("invalid_id", ("NoSuchBucket", 404)),
        ("not_found", ("NoSuchKey", 404)), ("invalid_request", ("InvalidArgument", 400)),
        ("range_not_satisfiable", ("InvalidRange", 416)), ("precondition_failed", ("PreconditionFailed", 412)),
        ("unauthorized", ("AccessDenied", 403)), ("forbidden", ("AccessDenied", 403)),
        ("internal", ("InternalError", 500)), ("too_many_uploads", ("ServiceUnavailable", 503)),
        ("timed_out", ("ServiceUnavailable", 503)), ("not_ready", ("ServiceUnavailable", 503)),
        ("too_large", ("InvalidRequest", 413)),
    ],
)  # fmt: skip
def test_a_client_of_s3_hears_an_error_of_s3(code: str, expected: tuple[str, int]) -> None:
    """If this fails, a client gives up on what is over soon, or asks for ever for what is not
    there."""
    assert expected == s3_errors.code_of(error_of(code))


def test_an_error_of_s3_is_a_document() -> None:
    """If this fails, a user of S3 reads that the XML of an error cannot be parsed."""
    error = TorrentdistError("not_found", what="'a<b' in this bundle")
    answer = s3_answer("/s3/etl/a<b", error)
    body = bytes(answer.body).decode()

    assert (404, "application/xml") == (answer.status_code, answer.headers["content-type"])
    assert "<Code>NoSuchKey</Code>" in body
    assert "<Resource>/s3/etl/a&lt;b</Resource>" in body
    assert error.message.replace("<", "&lt;") in body


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("bundle_not_found", ("MANIFEST_UNKNOWN", 404)), ("not_found", ("MANIFEST_UNKNOWN", 404)),
        ("invalid_id", ("NAME_INVALID", 400)), ("range_not_satisfiable", ("BLOB_UPLOAD_INVALID", 416)),
        ("too_large", ("SIZE_INVALID", 413)), ("tag_taken", ("DENIED", 409)),
        ("too_many_uploads", ("TOOMANYREQUESTS", 429)), ("unauthorized", ("UNAUTHORIZED", 401)),
        ("forbidden", ("DENIED", 403)), ("internal", ("UNKNOWN", 500)), ("invalid_request", ("UNSUPPORTED", 400)),
    ],
)  # fmt: skip
def test_a_runtime_hears_an_error_of_registries(code: str, expected: tuple[str, int]) -> None:
    """If this fails, a runtime does not go on to the next registry, or does not log in."""
    assert expected == registry_errors.code_of(error_of(code))


def test_a_runtime_is_told_how_to_go_on() -> None:
    """If this fails, an error other than a missing token asks a user for a password."""
    missing = registry_answer(RegistryError("BLOB_UNKNOWN", 404, "the blob"))
    wrong = registry_answer(RegistryError("DIGEST_INVALID", 400, "it is wrong"))
    refused = registry_answer(error_of("unauthorized"))
    told = [json.loads(bytes(answer.body))["errors"][0] for answer in (missing, wrong, refused)]

    assert [404, 400, 401] == [answer.status_code for answer in (missing, wrong, refused)]
    assert ["BLOB_UNKNOWN", "DIGEST_INVALID", "UNAUTHORIZED"] == [one["code"] for one in told]
    assert [False, False, True] == ["www-authenticate" in answer.headers for answer in (missing, wrong, refused)]
    assert [False, False, True] == [one["detail"] == HOW for one in told]
    assert {"registry/2.0"} == {
        answer.headers["docker-distribution-api-version"] for answer in (missing, wrong, refused)
    }


def raised_in(error: TorrentdistError) -> TorrentdistError:
    with pytest.raises(TorrentdistError) as raised, told_as("MANIFEST_INVALID"):
        raise error
    return raised.value


def test_only_a_fault_of_the_request_gets_the_registrys_code() -> None:
    """If this fails, a client is told that its manifest is wrong where a disk is full."""
    wrong = raised_in(TorrentdistError("invalid_request", detail="no layers"))
    own, full = RegistryError("DIGEST_INVALID", 400, "x"), error_of("disk_full")

    assert (("MANIFEST_INVALID", 400), "no layers") == (registry_errors.code_of(wrong), wrong.fields["detail"])
    assert (own, full) == (raised_in(own), raised_in(full))


def test_each_path_belongs_to_one_protocol() -> None:
    """If this fails, a client gets an error in the form of another protocol."""
    assert [True, True, False, False] == [is_s3(path) for path in ("/s3", "/s3/a", "/s3a", "/a/s3")]
    assert [True, True, False, False] == [is_registry(path) for path in ("/v2", "/v2/", "/v20/x", "/a/v2/")]
    kinds = [error_answer(path, error_of("forbidden")) for path in ("/s3/a", "/v2/a", "/bundles/a")]

    assert ["application/xml", "application/json", "application/json"] == [one.headers["content-type"] for one in kinds]
    assert [False, True, False] == [b'"errors"' in bytes(one.body) for one in kinds]


async def test_java_finds_the_reason_in_the_url() -> None:
    """If this fails, a user of Spark reads `FileNotFoundException` and no reason."""
    error = TorrentdistError("bundle_not_found", id="etl-1", note="")
    java = await on_bundle_error(asked("/bundles/etl-1/x.jar", "Java/17.0.1"), error)
    others = [
        await on_bundle_error(asked("/bundles/etl-1/x.jar", "curl/8 Java/"), error),
        await on_bundle_error(asked("/simple/etl-1/", "Java/17.0.1"), error),
    ]

    sentence = f"{error.message}. {error.hint}".split()
    place = java.headers["location"]
    assert (302, True) == (java.status_code, place.startswith(f"/error/bundle_not_found/{sentence[0]}_{sentence[1]}_"))
    assert [404, 404] == [answer.status_code for answer in others]
    assert ["bundle_not_found"] * 2 == [json.loads(bytes(answer.body))["error"] for answer in others]


@pytest.mark.parametrize(
    ("code", "revision", "expected"),
    [
        ("bundle_not_found", None, "RepoNotFound"), ("bundle_not_found", "main", "RepoNotFound"),
        ("bundle_not_found", "v2", "RevisionNotFound"), ("not_found", "v2", "EntryNotFound"), ("forbidden", "v2", None),
    ],
)  # fmt: skip
async def test_the_hubs_library_tells_what_is_missing(code: str, revision: str | None, expected: str | None) -> None:
    """If this fails, `huggingface_hub` says that a repository is missing where a file is."""
    named = {} if revision is None else {"revision": revision}
    answer = await on_hub_error(asked("/hub/x", path_params=named), error_of(code))

    assert expected == answer.headers.get("x-error-code")
    assert "x-repo-commit" not in answer.headers


async def test_the_hubs_library_shows_the_reason() -> None:
    """If this fails, a user of `huggingface_hub` reads a status and no reason, or the library
    refuses the header."""
    error = TorrentdistError("not_found", what="'é\n\u2028" + "x" * 2000 + "' in this bundle")
    known: dict[str, Any] = {"torrentdist.hub_commit": "c" * 40}
    answer: Response = await on_hub_error(asked("/hub/x", path_params={}, **known), error)
    told = answer.headers["x-error-message"]

    assert (1000, True, "c" * 40) == (len(told), told.isascii(), answer.headers["x-repo-commit"])
    assert "'? ?xxx" in told


def test_every_error_has_a_code_of_s3_and_of_registries() -> None:
    """If this fails, an error of ours ends as an error of the server."""
    for code in (code for code, kind in ERRORS.items() if kind.http_status >= 400):
        error = TorrentdistError.__new__(TorrentdistError)
        error.code, error.kind = code, ERRORS[code]
        for name, status in (s3_errors.code_of(error), registry_errors.code_of(error)):
            assert name
            assert 400 <= status < 600
