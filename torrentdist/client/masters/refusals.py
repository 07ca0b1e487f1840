"""Interprets a master's refusal for the search for a master that can answer.

Always: an error that no other master would avoid is raised at once.
Pure: no I/O and no clock.
"""

from torrentdist.client.masters import leader_search
from torrentdist.client.masters.leader_search import Reply, Said
from torrentdist.model.errors import TorrentdistError

_ANOTHER_MAY_KNOW = frozenset(
    {"not_ready", "zookeeper_unavailable", "closing", "not_leader", "bundle_unavailable", "internal"}
)
_ANOTHER_MAY_LEAD = frozenset({"no_leader", "zookeeper_unavailable", "leadership_lost", "closing", "outcome_unknown"})


def judge_read(error: TorrentdistError) -> Reply:
    """Returns what a refused read means for the search."""
    if error.code not in _ANOTHER_MAY_KNOW:
        raise error
    if error.code == "not_leader":
        return judge_change(error)
    return Reply(Said.BEHIND if error.extra.get("behind") else Said.UNABLE, error.message)


def judge_change(error: TorrentdistError) -> Reply:
    """Returns what a refused change means for the search for the leader."""
    if error.code == "not_leader":
        leader, masters = error.extra.get("leader"), error.extra.get("masters")
        named = [url for url in masters if isinstance(url, str)] if isinstance(masters, list) else []
        return Reply(
            Said.NOT_LEADER,
            f"not the leader, which is {leader}" if leader else "not the leader, and knows none",
            leader=leader if isinstance(leader, str) else None,
            masters=leader_search.learned(named),
        )
    if error.code == "not_ready":
        return Reply(Said.NOT_READY, error.message)
    if error.code in _ANOTHER_MAY_LEAD:
        return Reply(Said.UNABLE, error.message)
    raise error


def no_leader_found(search: leader_search.Search, unsure: bool) -> TorrentdistError:
    """Returns the error for a change that no master confirmed. `unsure` tells whether a master may
    still have made it."""
    code = "outcome_unknown" if unsure else "leader_not_found" if search.ever_heard else "unreachable"
    return TorrentdistError(code, detail=search.story(), extra=answers_of(search))


def answers_of(search: leader_search.Search) -> dict[str, object]:
    """Returns the last answer of each master, to be added to an error."""
    return {"answers": dict(search.answers)}
