"""Reads the fields of the console's forms into what the API's operations expect.

Pure.
Always: a form that says nothing means the same as the command without options; the error for a
wrong field names it.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from torrentdist.model.access.token_messages import QuotaBody
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.policies.bundle_terms import Priority, priority_of
from torrentdist.model.policies.policy_messages import RetentionBody
from torrentdist.model.policies.written_amounts import parse_duration, parse_share, parse_size
from torrentdist.model.wire.fleet_messages import DistributeBody

Fields = Mapping[str, str]
T = TypeVar("T")

LONGEST_AMOUNT = 30
MOST = 2**62


def amount(fields: Fields, name: str, parse: Callable[[str], float], default: T) -> float | T:
    """Returns the number in a field, or the default if it is empty. Raises `invalid_request`."""
    text = fields.get(name, "").strip()
    if not text:
        return default
    try:
        value = parse(text[: LONGEST_AMOUNT + 1])
        if len(text) > LONGEST_AMOUNT or value > MOST:
            raise ValueError("it is too large")
    except ValueError as exc:
        raise TorrentdistError("invalid_request", detail=f"{name} {text[:LONGEST_AMOUNT]!r}: {exc}") from None
    return value


def whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise ValueError("give a number such as 3")
    return int(text)


def labels_of(text: str) -> dict[str, str]:
    labels = {}
    for pair in text.split():
        name, equals, value = pair.partition("=")
        if not equals:
            raise TorrentdistError("invalid_request", detail=f"{pair[:100]!r} is no label NAME=VALUE")
        labels[name] = value
    return labels


def distribute_body(fields: Fields) -> DistributeBody:
    named = fields.get("supervisors", "").replace(",", " ").split()
    return DistributeBody(
        supervisors=named or None,
        labels=labels_of(fields.get("labels", "")),
        share=amount(fields, "share", parse_share, 1.0),
        canary=int(amount(fields, "canary", whole, 0)),
        concurrency=int(amount(fields, "concurrency", whole, 0)),
        keep_secs=amount(fields, "keep", parse_duration, 0.0),
        rate=int(amount(fields, "rate", parse_size, 0)),
        priority=priority_of(fields.get("priority") or Priority.NORMAL),
    )


def distribution_request(_: str, fields: Fields) -> tuple[dict[str, str], bytes]:
    return {}, msgspec.json.encode(distribute_body(fields))


def quota_request(_: str, fields: Fields) -> tuple[dict[str, str], bytes]:
    """An empty field leaves a limit as it is."""
    size, count = amount(fields, "max_bytes", parse_size, None), amount(fields, "max_distributions", whole, None)
    body = QuotaBody(
        max_bytes=None if size is None else int(size), max_distributions=None if count is None else int(count)
    )
    return {}, msgspec.json.encode(body)


def rule_request(pattern: str, fields: Fields) -> tuple[dict[str, str], bytes]:
    keep = int(amount(fields, "keep", whole, 0))
    for_secs = amount(fields, "for", parse_duration, 0.0)
    body = RetentionBody(pattern=fields.get("pattern", "").strip() or pattern, keep=keep, for_secs=for_secs)
    return {}, msgspec.json.encode(body)


def rule_end_request(pattern: str, _: Fields) -> tuple[dict[str, str], bytes]:
    return {"pattern": pattern}, b""


def wait_request(_: str, fields: Fields) -> tuple[dict[str, str], bytes]:
    return {"wait": fields["wait"]} if fields.get("wait") else {}, b""


def transfer_request(master: str, _: Fields) -> tuple[dict[str, str], bytes]:
    return {}, msgspec.json.encode({"master": master})
