"""Shortens announce answers: a peer that names the tag of its last answer is sent only what changed
since.

Always: `whole(brief(answer), before)` is `answer` again, for a peer that names the tags it heard
last. Equal answers have equal tags, whatever the order of their peers.
Never: leave out something that the peer may not know.
"""

from __future__ import annotations

import hashlib
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from torrentdist.model.wire.swarm_messages import SwarmAnnounce, SwarmAnswer


def brief(answer: SwarmAnswer, heard: SwarmAnnounce) -> SwarmAnswer:
    """The answer without what the peer knows by the tags in `heard`. Only the interval is left if
    nothing changed."""
    tag = _tag(answer)
    if heard.known == tag:
        return SwarmAnswer(interval=answer.interval, you=answer.you, addresses_tag=answer.addresses_tag, tag=tag)
    told = heard.addresses == answer.addresses_tag
    return replace(answer, addresses=[] if told else answer.addresses, tag=tag)


def whole(answer: SwarmAnswer, before: SwarmAnswer | None) -> SwarmAnswer:
    """The complete answer, from a shortened one and the answer before it."""
    if before is None:
        return answer
    if answer.tag and answer.tag == before.tag:
        return replace(before, interval=answer.interval)
    if not answer.addresses and answer.addresses_tag == before.addresses_tag:
        return replace(answer, addresses=before.addresses)
    return answer


def _tag(answer: SwarmAnswer) -> str:
    said = hashlib.blake2b(digest_size=8)
    swarms = {
        digest: replace(told, peers=sorted(told.peers, key=attrgetter("host", "port", "complete")))
        for digest, told in answer.swarms.items()
    }
    for part in (answer.you, swarms, answer.addresses_tag, answer.masters, answer.wanted):
        said.update(msgspec.json.encode(part))
    return said.hexdigest()
