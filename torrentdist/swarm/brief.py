"""What is left to say of an answer to who has heard all but that: announces come every second, and news rarely.

Always holds: `whole` of what `brief` leaves is what there was to say, for whoever names the tags that it heard last;
equal answers have equal tags, in whatever order their peers stand. Must not do: leave out what the asker may not know.
"""

from __future__ import annotations

import hashlib
from operator import attrgetter

import msgspec
from msgspec.structs import replace

from torrentdist.model.views import SwarmAnnounce, SwarmAnswer


def brief(answer: SwarmAnswer, heard: SwarmAnnounce) -> SwarmAnswer:
    """Without what the tags in `heard` stand for. All but the interval is news if anything is."""
    tag = _tag(answer)
    if heard.known == tag:
        return SwarmAnswer(interval=answer.interval, you=answer.you, addresses_tag=answer.addresses_tag, tag=tag)
    told = heard.addresses == answer.addresses_tag
    return replace(answer, addresses=[] if told else answer.addresses, tag=tag)


def whole(answer: SwarmAnswer, before: SwarmAnswer | None) -> SwarmAnswer:
    """With what was heard before."""
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
