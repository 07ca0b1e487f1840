"""What a client asks of a bucket's list: ListObjectsV2, and the older ListObjects.

Always: a token for the next page is a key, so it holds on every host and for ever.
Pure: no I/O.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import msgspec

from torrentdist.model.errors import TorrentdistError
from torrentdist.supervisor.objects.bucket_listing import ObjectPage, PageRequest

MOST_KEYS: Final = 1000
_DIGITS: Final = 9


class ListRequest(msgspec.Struct, frozen=True):
    bucket: str
    page: PageRequest
    query: Mapping[str, str]

    @classmethod
    def of(cls, bucket: str, query: Mapping[str, str]) -> "ListRequest":
        """Returns what the query asks for, or raises `invalid_request`."""
        kind = query.get("list-type", "1")
        if kind not in ("1", "2"):
            raise _invalid("list-type", kind, "1 or 2")
        if (encoding := query.get("encoding-type", "url")) != "url":
            raise _invalid("encoding-type", encoding, "url")
        after = _token(query["continuation-token"]) if "continuation-token" in query else b""
        start = query.get("start-after" if kind == "2" else "marker", "").encode("utf-8", "replace")
        page = PageRequest(
            prefix=query.get("prefix", "").encode("utf-8", "replace"),
            delimiter=query.get("delimiter", "").encode("utf-8", "replace"),
            after=after or start,
            most=min(MOST_KEYS, _most(query.get("max-keys", str(MOST_KEYS)))),
        )
        return cls(bucket, page, query)

    @property
    def as_urls(self) -> bool:
        return "encoding-type" in self.query

    def repeated(self, page: ObjectPage) -> dict[str, str | int | bool | None]:
        """Returns what the answer says of the request, and where the next page begins."""
        query, shown = self.query, self._shown
        fields: dict[str, str | int | bool | None] = {
            "Name": self.bucket,
            "Prefix": shown(query.get("prefix", "")),
            "Delimiter": shown(query["delimiter"]) if query.get("delimiter") else None,
            "MaxKeys": self.page.most,
            "EncodingType": query.get("encoding-type"),
            "IsTruncated": page.is_cut,
        }
        last = page.last.decode()
        if query.get("list-type") != "2":
            more = shown(last) if page.is_cut else None
            return fields | {"Marker": shown(query.get("marker", "")), "NextMarker": more}
        return fields | {
            "KeyCount": len(page.objects) + len(page.prefixes),
            "StartAfter": shown(query["start-after"]) if "start-after" in query else None,
            "ContinuationToken": query.get("continuation-token"),
            "NextContinuationToken": urlsafe_b64encode(page.last).decode() if page.is_cut else None,
        }

    def _shown(self, text: str) -> str:
        return quote(text, safe="/") if self.as_urls else text


def _most(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS:
        raise _invalid("max-keys", text, "a number")
    return int(text)


def _token(text: str) -> bytes:
    try:
        key = urlsafe_b64decode(text.encode("ascii"))
        key.decode()
    except (ValueError, binascii.Error):
        key = b""
    if not key:
        raise _invalid("continuation-token", text, "of an answer before")
    return key


def _invalid(name: str, text: str, wanted: str) -> TorrentdistError:
    return TorrentdistError("invalid_request", detail=f"{name}={text[:100]!r} is not {wanted}")
