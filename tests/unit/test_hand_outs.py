"""What a host does when peers leave a bundle that it cannot read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from zookeeper_fixtures import eventually

from torrentdist.host import hand_outs
from torrentdist.host.hand_outs import HandOuts
from torrentdist.model.events import PeerDropped
from torrentdist.model.ids import Digest
from torrentdist.model.wire.transfer_messages import TransferPhase

pytestmark = pytest.mark.anyio

D = Digest("ab" * 32)


@pytest.mark.case("E5")
@pytest.mark.parametrize(("damaged", "expected"), [(["data.bin"], ["fetched again"]), ([], ["offered again"])])
async def test_a_bundle_whose_transfer_failed_is_fetched_or_offered_again(
    damaged: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If this fails, a host whose disk failed for a moment offers the bundle to nobody, or fetches
    it too late."""
    done: list[str] = []
    listeners: list[Any] = []

    async def verify(digest: Digest) -> list[str]:
        return damaged

    async def seed(digest: Digest) -> None:
        done.append("offered again")

    runtime: Any = SimpleNamespace(
        store=SimpleNamespace(get=lambda digest: digest),
        events=SimpleNamespace(subscribe=listeners.append),
        fetches=SimpleNamespace(on_suspect=[]),
        engine=SimpleNamespace(transfer=lambda digest: SimpleNamespace(phase=TransferPhase.FAILED)),
        transfers=SimpleNamespace(seed=seed),
        verify=verify,
    )
    monkeypatch.setattr(hand_outs, "PAUSE_SECS", 0.0)
    giving = HandOuts(runtime, lambda: done.append("fetched again"))
    for listener in listeners:
        listener(PeerDropped(digest=D, host="127.0.0.1", port=1, reason="wrong bytes"))
    await eventually(lambda: bool(done))
    await giving.close()

    assert expected == done
