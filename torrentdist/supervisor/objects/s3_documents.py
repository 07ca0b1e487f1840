"""The XML documents of S3: lists of buckets and objects, and errors.

Always: a document is well-formed, whatever a name holds. A character that XML cannot hold becomes
U+FFFD, unless the client asked for names in the form of URLs.
Pure: no I/O and no clock.
"""

import html
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote

from torrentdist.supervisor.objects.bucket_listing import ObjectIndex, ObjectPage

NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"
MODIFIED_SECS: Final = 315532800
"""1980-01-01, when every object was changed last. A bundle never changes, and YARN refuses a file
that was changed at another time on the next host."""
MODIFIED: Final = "1980-01-01T00:00:00.000Z"
_UNFIT: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
Fields = Mapping[str, str | int | bool | None]


def document(root: str, body: str, *, namespace: bool = True) -> bytes:
    told = f' xmlns="{NAMESPACE}"' if namespace else ""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root}{told}>{body}</{root}>'.encode()


def elements(fields: Fields) -> str:
    """Returns one element for each field; None leaves it out."""
    return "".join(f"<{name}>{_text(value)}</{name}>" for name, value in fields.items() if value is not None)


def _text(value: str | int | bool | None) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return html.escape(_UNFIT.sub("\ufffd", str(value)), quote=False)


def error_document(code: str, message: str, resource: str) -> bytes:
    return document("Error", elements({"Code": code, "Message": message, "Resource": resource}), namespace=False)


def bucket_list(names: Iterable[str], owner: str) -> bytes:
    buckets = "".join(f"<Bucket>{elements({'Name': name, 'CreationDate': MODIFIED})}</Bucket>" for name in names)
    told = elements({"ID": owner, "DisplayName": owner})
    return document("ListAllMyBucketsResult", f"<Owner>{told}</Owner><Buckets>{buckets}</Buckets>")


def object_list(index: ObjectIndex, page: ObjectPage, fields: Fields, *, as_urls: bool) -> bytes:
    """Returns one page of a bucket's objects. `fields`: what the answer repeats of the request."""

    def shown(key: bytes) -> str:
        return quote(key, safe="/") if as_urls else key.decode()

    entries: list[Fields] = [
        {
            "Key": shown(index.keys[place]),
            "LastModified": MODIFIED,
            "ETag": f'"{index.files[place].tag}"',
            "Size": index.files[place].size,
            "StorageClass": "STANDARD",
        }
        for place in page.objects
    ]
    contents = "".join(f"<Contents>{elements(entry)}</Contents>" for entry in entries)
    shared = "".join(f"<CommonPrefixes>{elements({'Prefix': shown(key)})}</CommonPrefixes>" for key in page.prefixes)
    return document("ListBucketResult", elements(fields) + contents + shared)
