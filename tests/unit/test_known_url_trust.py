"""What a gateway knows to verify URLs for pods: what it hears, keeps and reads again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from torrentdist.model.access.envelope import public_key_text
from torrentdist.model.access.url_messages import UrlTrustView
from torrentdist.model.errors import TorrentdistError
from torrentdist.security.capabilities import Capability, sign_capability, signing_key
from torrentdist.supervisor.gateway.known_url_trust import FILE, KnownUrlTrust

pytestmark = pytest.mark.anyio
NOW = 1_700_000_000.0
KEY, NEXT_KEY = signing_key("the masters' secret", ""), signing_key("the masters' secret", "next")
MADE = Capability(cluster="c1", name="url-1", bundles="etl-*", path="", until=int(NOW) + 60)
TEXT = sign_capability(MADE, KEY)
TOLD = UrlTrustView(
    cluster="c1", key=public_key_text(KEY.public_key().public_bytes_raw()), since=5.0, now=NOW, revoked={}
)


class Bench:
    """A gateway whose host's clocks stand where the test sets them."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.monotonic, self.wall = 100.0, NOW
        monkeypatch.setattr(time, "monotonic", lambda: self.monotonic)
        monkeypatch.setattr(time, "time", lambda: self.wall)

    def gateway(self) -> KnownUrlTrust:
        unused: Any = None
        return KnownUrlTrust(unused, lambda: (), self.directory)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def refusal(gateway: KnownUrlTrust, text: str = TEXT) -> str:
    with pytest.raises(TorrentdistError) as refused:
        gateway.verified(text)
    return refused.value.code


async def test_a_gateway_that_has_heard_nothing_opens_nothing(bench: Bench) -> None:
    """If this fails, a pod is told that its URL is wrong while no master has answered yet."""
    gateway = bench.gateway()
    await gateway.load()

    assert "not_ready" == refusal(gateway)


async def test_a_url_ends_by_the_masters_clock(bench: Bench) -> None:
    """If this fails, a wrong clock of a host ends URLs early, or keeps them open after their
    end."""
    gateway, bench.wall = bench.gateway(), NOW + 10_000
    await gateway.load()
    await gateway.hear(TOLD)
    bench.monotonic += 59.9
    found = gateway.verified(TEXT)
    bench.monotonic += 0.1

    assert (MADE, "url_expired") == (found, refusal(gateway))


async def test_a_gateway_goes_on_after_a_restart_without_a_master(bench: Bench) -> None:
    """If this fails, pods get nothing from a host that restarts while the masters are away."""
    before = bench.gateway()
    await before.hear(TOLD)
    after = bench.gateway()
    await after.load()
    bench.wall, bench.monotonic = NOW + 59, bench.monotonic + 59
    found = after.verified(TEXT)
    bench.monotonic += 1

    assert (MADE, "url_expired") == (found, refusal(after))
    assert 0o600 == (bench.directory / FILE).stat().st_mode & 0o777


async def test_a_revocation_holds_after_a_restart_and_against_a_master_that_lags(bench: Bench) -> None:
    """If this fails, a stolen URL opens bundles again after its revocation."""
    before = bench.gateway()
    await before.hear(TOLD)
    await before.hear(replace(TOLD, revoked={"url-1": NOW + 60}))
    await before.hear(replace(TOLD, revoked={"url-2": NOW + 60}))
    after = bench.gateway()
    await after.load()

    assert ("url_revoked", "url_revoked") == (refusal(before), refusal(after))


async def test_a_key_that_was_replaced_never_returns(bench: Bench) -> None:
    """If this fails, URLs that an operator has ended open bundles again after a restart."""
    new = replace(TOLD, key=public_key_text(NEXT_KEY.public_key().public_bytes_raw()), since=6.0)
    before = bench.gateway()
    await before.hear(TOLD)
    await before.hear(new)
    kept = (bench.directory / FILE).read_bytes()
    await before.hear(TOLD)
    after = bench.gateway()
    await after.load()

    assert kept == (bench.directory / FILE).read_bytes()
    assert ["url_invalid"] * 2 == [refusal(gateway) for gateway in (before, after)]
    assert MADE == after.verified(sign_capability(MADE, NEXT_KEY))


async def test_nothing_is_written_without_news(bench: Bench) -> None:
    """If this fails, each host writes to its disk every five seconds."""
    gateway = bench.gateway()
    await gateway.hear(TOLD)
    (bench.directory / FILE).unlink()
    await gateway.hear(replace(TOLD, now=NOW + 5))

    assert not (bench.directory / FILE).exists()


@pytest.mark.parametrize("data", [b"", b"{}", b'{"cluster":"c1","key":"x","since":1,"now":1,"revoked":{}}'])
async def test_a_damaged_file_keeps_no_gateway_from_starting(bench: Bench, data: bytes) -> None:
    """If this fails, a supervisor does not start after its disk lost a write."""
    (bench.directory / FILE).write_bytes(data)
    gateway = bench.gateway()
    await gateway.load()
    before = refusal(gateway)
    await gateway.hear(TOLD)

    assert ("not_ready", MADE) == (before, gateway.verified(TEXT))


async def test_a_disk_that_takes_nothing_ends_no_url(bench: Bench) -> None:
    """If this fails, pods get nothing from a host whose disk is full."""
    bench.directory = bench.directory / "absent"
    gateway = bench.gateway()
    await gateway.hear(TOLD)

    assert MADE == gateway.verified(TEXT)


async def test_a_revocation_that_could_not_be_written_is_written_later(bench: Bench) -> None:
    """If this fails, a stolen URL that was revoked while the disk was full opens bundles again
    after a restart, or a key that was replaced meanwhile returns."""
    new = replace(TOLD, key=public_key_text(NEXT_KEY.public_key().public_bytes_raw()), since=6.0)
    revoked = replace(new, revoked={"url-1": NOW + 60})
    there, bench.directory = bench.directory, bench.directory / "later"
    before = bench.gateway()
    await before.hear(TOLD)
    await before.hear(revoked)
    there.joinpath("later").mkdir()
    await before.hear(TOLD)
    after = bench.gateway()
    await after.load()

    assert ["url_invalid"] * 2 == [refusal(gateway) for gateway in (before, after)]
    assert "url_revoked" == refusal(after, sign_capability(MADE, NEXT_KEY))
