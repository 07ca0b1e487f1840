"""Shortens announce answers: a peer that names the tag of its last answer is sent only what changed
since.

Always: `completed(shortened(answer), before)` equals `answer` for a peer that names the tags of its
last answer. Equal answers have equal tags, whatever the order of their peers.
Never: omit anything that the peer may not know.
"""

import hashlib
from operator import attrgetter
from typing import Final

import msgspec
from msgspec.structs import replace

from torrentdist.model.wire.swarm_messages import SwarmAnnounce, SwarmAnswer

_TAG_BYTES: Final = 8


def shortened(answer: SwarmAnswer, heard: SwarmAnnounce) -> SwarmAnswer:
    """Returns the answer without what the peer knows, according to the tags in `heard`. If nothing
    changed, only the interval remains."""
    tag = _tag(answer)
    if heard.known == tag:
        return SwarmAnswer(interval=answer.interval, you=answer.you, addresses_tag=answer.addresses_tag, tag=tag)
    told = heard.addresses == answer.addresses_tag
    return replace(answer, addresses=[] if told else answer.addresses, tag=tag)


def completed(answer: SwarmAnswer, before: SwarmAnswer | None) -> SwarmAnswer:
    """Returns the complete answer, from a shortened one and the previous complete one."""
    if before is None:
        return answer
    if answer.tag and answer.tag == before.tag:
        return replace(before, interval=answer.interval)
    if not answer.addresses and answer.addresses_tag == before.addresses_tag:
        return replace(answer, addresses=before.addresses)
    return answer


def _tag(answer: SwarmAnswer) -> str:
    said = hashlib.blake2b(digest_size=_TAG_BYTES)
    swarms = {
        digest: replace(told, peers=sorted(told.peers, key=attrgetter("host", "port", "complete")))
        for digest, told in answer.swarms.items()
    }
    for part in (answer.you, swarms, answer.addresses_tag, answer.shut_out, answer.masters, answer.wanted):
        said.update(msgspec.json.encode(part))
    return said.hexdigest()
