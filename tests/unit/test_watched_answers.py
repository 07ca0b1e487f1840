"""What --watch does when the masters cannot be asked."""

from __future__ import annotations

import pytest

from torrentdist.client.masters.master_client import MasterClient
from torrentdist.model.errors import TorrentdistError
from torrentdist_cli.frame.command import OutputFormat, Session
from torrentdist_cli.frame.watching import watch

OUTAGE, REFUSED = TorrentdistError("no_leader"), TorrentdistError("forbidden", detail="another role")


def watched(*answers: str | TorrentdistError) -> tuple[str, list[str]]:
    """Returns the code of the error that ended the watching, and the answers that were shown."""
    left, seen = list(answers), list[str]()

    async def ask(_: MasterClient) -> str:
        answer = left.pop(0)
        if isinstance(answer, TorrentdistError):
            raise answer
        return answer

    session = Session(masters="http://127.0.0.1:7060", output=OutputFormat.JSONL)
    with pytest.raises(TorrentdistError) as caught:
        watch(session, ask, str, seen.append, every=0.001)
    return caught.value.code, seen


def test_an_outage_ends_a_watch_only_before_its_first_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """With a wrong address, a script would watch for ever without an answer, or an operator's
    picture would be gone at the moment of an outage."""
    at_once, later = watched(OUTAGE, REFUSED), watched("one", OUTAGE, "two", REFUSED)

    assert ("no_leader", []) == at_once
    assert ("forbidden", ["one", "two"]) == later
    assert OUTAGE.message in capsys.readouterr().err
