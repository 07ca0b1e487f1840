"""Errors of the gateway as a container registry tells them.

Always: what does not exist here is 404, at which a runtime goes on to the next registry.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from starlette.responses import Response

from torrentdist.host.http.web import json_response
from torrentdist.model.errors import TorrentdistError

V2_PATH: Final = "/v2"
TOKEN_PATH: Final = V2_PATH + "/token"
VERSION: Final = {"docker-distribution-api-version": "registry/2.0"}
HOW: Final = "Log in with any name, and with a token of the cluster as the password."
_CODES: Final[Mapping[str, tuple[str, int]]] = {
    "bundle_not_found": ("MANIFEST_UNKNOWN", 404),
    "not_found": ("MANIFEST_UNKNOWN", 404),
    "invalid_id": ("NAME_INVALID", 400),
    "range_not_satisfiable": ("BLOB_UPLOAD_INVALID", 416),
    "too_large": ("SIZE_INVALID", 413),
    "tag_taken": ("DENIED", 409),
    "too_many_uploads": ("TOOMANYREQUESTS", 429),
}


class RegistryError(TorrentdistError):
    """An error for which registries have a code of their own."""

    def __init__(self, registry_code: str, status: int, what: str) -> None:
        if status == 404:
            super().__init__("not_found", what=what)
        else:
            super().__init__("invalid_request", detail=what)
        self.registry_code = registry_code
        self.status = status


@contextmanager
def told_as(registry_code: str) -> Iterator[None]:
    """Gives what is wrong with a request this code of registries."""
    try:
        yield
    except RegistryError:
        raise
    except TorrentdistError as error:
        if error.code != "invalid_request":
            raise
        raise RegistryError(registry_code, 400, str(error.fields.get("detail", ""))) from error


def is_registry(path: str) -> bool:
    return path == V2_PATH or path.startswith(f"{V2_PATH}/")


def code_of(error: TorrentdistError) -> tuple[str, int]:
    """Returns the registry's code and status of an error."""
    if isinstance(error, RegistryError):
        return error.registry_code, error.status
    if (found := _CODES.get(error.code)) is not None:
        return found
    status = error.http_status
    if status == 401:
        return "UNAUTHORIZED", 401
    if status == 403:
        return "DENIED", 403
    return "UNKNOWN" if status >= 500 else "UNSUPPORTED", status


def registry_answer(error: TorrentdistError, realm: str = "") -> Response:
    """Returns the answer that tells this error. One without a proof is told how to give it.
    `realm`: the URL at which a password is exchanged for a bearer token; empty: it is taken as it
    is."""
    code, status = code_of(error)
    told = {"code": code, "message": error.message, "detail": HOW if status == 401 else error.hint}
    way = f'Bearer realm="{realm}",service="torrentdist"' if realm else 'Basic realm="torrentdist"'
    challenge = {"www-authenticate": way} if status == 401 else {}
    return json_response({"errors": [told]}, status=status, headers=VERSION | challenge)
