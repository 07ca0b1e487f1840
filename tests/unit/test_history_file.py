"""The file in which a master keeps the history of distributions."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from torrentdist.master.history import history_file
from torrentdist.master.history.distribution_runs import DistributionRun, HostLine, KeptHistory, summary_of
from torrentdist.master.history.history_file import NAME, HistoryFile, decode_history, encode_history
from torrentdist.model.ids import BundleId, Digest, SupervisorId

pytestmark = pytest.mark.anyio
RUN = DistributionRun(
    bundle=BundleId("etl"), digest=Digest("d" * 64), size=10, began_at=1.0, changed_at=2.0,
    hosts={SupervisorId("h1"): HostLine()},
)  # fmt: skip
PAST = summary_of(msgspec.structs.replace(RUN, began_at=0.5), 1.5)
KEPT = KeptHistory(open={RUN.id: RUN}, past={PAST.run: PAST})


async def test_a_history_is_there_again_after_a_restart(tmp_path: Path) -> None:
    """If this fails, each restart of a master forgets what its distributions did."""
    written = await HistoryFile(tmp_path).write(KEPT)

    assert written
    assert KEPT == await HistoryFile(tmp_path).read()
    assert 0o600 == (tmp_path / NAME).stat().st_mode & 0o777


@pytest.mark.parametrize("data", [None, b"", b"{}", b'{"format":2,"kept":{}}', b"\xff"])
async def test_a_damaged_history_keeps_no_master_from_starting(tmp_path: Path, data: bytes | None) -> None:
    """If this fails, a master does not start because of a torn file that nothing depends on."""
    if data is not None:
        (tmp_path / NAME).write_bytes(data)

    assert KeptHistory() == await HistoryFile(tmp_path).read()


async def test_a_disk_that_takes_nothing_is_told_and_tried_again(tmp_path: Path) -> None:
    """If this fails, a master counts a history as written that no disk has."""
    file = HistoryFile(tmp_path / "absent")
    before = await file.write(KEPT)
    (tmp_path / "absent").mkdir()

    assert (False, True) == (before, await file.write(KEPT))


def test_a_history_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, another master's copy takes all of the memory of this one."""
    data = encode_history(KEPT)
    monkeypatch.setattr(history_file, "MOST_BYTES", len(data))
    found = decode_history(data)
    monkeypatch.setattr(history_file, "MOST_BYTES", len(data) - 1)

    assert KEPT == found
    with pytest.raises(ValueError, match=f"it has {len(data)} bytes"):
        decode_history(data)


def test_ends_that_an_older_release_saw_are_not_told_again() -> None:
    """If this fails, an upgrade writes an event of each distribution of the past."""
    older = encode_history(KEPT).replace(b'"tells":true', b'"tells":false')

    assert [PAST] == decode_history(encode_history(KEPT)).untold
    assert ([], KEPT.past) == (decode_history(older).untold, decode_history(older).past)
