"""Says in words why a bundle stays in the cluster.

Always: a code that a newer release has added is shown as it is.
"""

from collections.abc import Iterable, Mapping
from typing import Final

IN_WORDS: Final[Mapping[str, str]] = {
    "newest": "it is one of the newest",
    "young": "it is younger than the rule's --for",
    "pinned": "it is pinned",
    "unavailable": "it is not available",
    "uploading": "its upload is not complete",
    "needed": "a live job needs it",
    "unreadable": "a damaged record may say that it is needed",
    "assigned": "a host is told to keep it",
    "distributed": "it is being distributed",
    "standing": "a standing order brings it to hosts",
    "promised": "hosts keep it for a time",
    "last_copy": "another bundle lives on its copies",
    "no_master": "no live master holds it",
    "other_rule": "another rule keeps it",
    "written_lately": "its record was written more recently than --older-than",
}


def in_words(reasons: Iterable[str]) -> str:
    """Returns words such as `it is pinned; a live job needs it`."""
    return "; ".join(IN_WORDS.get(reason, reason) for reason in reasons)
