"""Errors of the gateway as S3 tells them.

Always: an error that passes with time has a status at which clients of S3 ask again.
"""

from typing import Final

from starlette.responses import Response

from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.objects import s3_documents

S3_PATH: Final = "/s3"


def code_of(error: TorrentdistError) -> tuple[str, int]:
    """Returns S3's code and status of an error."""
    status = error.http_status
    match error.code:
        case "bundle_not_found" | "invalid_id":
            return "NoSuchBucket", 404
        case "not_found":
            return "NoSuchKey", 404
        case "invalid_request":
            return "InvalidArgument", 400
        case "range_not_satisfiable":
            return "InvalidRange", status
        case "precondition_failed":
            return "PreconditionFailed", status
    if status in (401, 403):
        return "AccessDenied", 403
    if status in (409, 429) or status >= 500:
        return ("InternalError", 500) if error.code == "internal" else ("ServiceUnavailable", 503)
    return "InvalidRequest", status


def is_s3(path: str) -> bool:
    return path == S3_PATH or path.startswith(f"{S3_PATH}/")


def xml_answer(body: bytes, status: int = 200) -> Response:
    return Response(body, status_code=status, media_type="application/xml")


def s3_answer(path: str, error: TorrentdistError) -> Response:
    """Returns the answer that tells this error about a path."""
    code, status = code_of(error)
    sentence = f"{error.message}. {error.hint}".strip()
    return xml_answer(s3_documents.error_document(code, sentence, path), status)
