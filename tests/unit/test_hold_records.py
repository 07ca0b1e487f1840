"""Holds in memory and on disk: what counts after a crash, and what masters are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.swarm_messages import SwarmEntry
from torrentdist.supervisor.bundles import holds as module
from torrentdist.supervisor.bundles.holds import FILE, MOST_NAMED, Hold, Holds

ONE, OTHER = Digest("1" * 64), Digest("2" * 64)


def hold(digest: Digest = ONE, user: str = "team/pod") -> Hold:
    return Hold(bundle=BundleId("env"), digest=digest, target=f"/t/{user}", user=user, taken_at=1.0)


def opened(data_dir: Path, on_change: Callable[[], None] = lambda: None) -> Holds:
    holds = Holds(data_dir, on_change)
    holds.load()
    return holds


def test_a_hold_survives_the_process_and_its_end_does_too(tmp_path: Path) -> None:
    """A restarted supervisor would evict what pods have mounted, or keep it for ever."""
    changes: list[int] = []

    async def change() -> None:
        holds = opened(tmp_path, lambda: changes.append(1))
        await holds.take("a", hold())
        await holds.take("b", hold(OTHER))
        assert await holds.end("b") == hold(OTHER)
        assert await holds.end("b") is None

    asyncio.run(change())

    assert ({"a": hold()}, frozenset({ONE})) == (dict(opened(tmp_path).all()), opened(tmp_path).digests())
    assert len(changes) == 3


@pytest.mark.parametrize("content", [b"{", b'{"schema":9}', b'{"holds":{"a":{}}}'])
def test_a_damaged_file_is_set_aside(tmp_path: Path, content: bytes) -> None:
    """A supervisor would not start, or overwrite what an operator could look at."""
    (tmp_path / FILE).write_bytes(content)

    assert {} == dict(opened(tmp_path).all())
    assert content == (tmp_path / FILE).with_suffix(".damaged").read_bytes()


def test_a_hold_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    """A caller that was refused would keep a bundle for ever, or lose one whose end failed."""
    holds = opened(tmp_path / "missing")

    async def failing() -> None:
        with pytest.raises(TorrentdistError):
            await holds.take("a", hold())

    asyncio.run(failing())

    assert frozenset() == holds.digests()


def test_there_is_a_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller in a loop would fill memory and disk."""
    monkeypatch.setattr(module, "MOST_HOLDS", 1)
    holds = opened(tmp_path)

    async def take() -> None:
        await holds.take("a", hold())
        await holds.take("a", hold())
        with pytest.raises(TorrentdistError, match="the most"):
            await holds.take("b", hold())

    asyncio.run(take())

    assert ["a"] == list(holds.all())


def test_masters_are_told_who_reads_and_how_many_more(tmp_path: Path) -> None:
    """`bundle show` would name nobody, or an announce would grow with the pods of a host."""
    holds = opened(tmp_path)

    async def take() -> None:
        for n in range(MOST_NAMED + 3):
            await holds.take(f"h{n}", hold(user=f"team/pod-{n:02}"))

    asyncio.run(take())
    entries = holds.named_in([SwarmEntry(digest=digest, complete=True) for digest in (ONE, OTHER)])

    assert [f"team/pod-{n:02}" for n in range(MOST_NAMED)] + ["3 more"] == entries[0].used_by
    assert [] == entries[1].used_by
