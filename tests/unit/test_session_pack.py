"""What an engine's own configuration makes of the session's settings."""

from __future__ import annotations

from typing import Any

import pytest

from torrentdist.model.configuration.config import SwarmConfig
from torrentdist.swarm.engine.connections import admits, canonical_range, clean_addresses
from torrentdist.swarm.engine.session_settings import (
    ALERTS,
    SEND_BUFFER,
    EngineConfig,
    engine_config,
    one_port,
    port_in_use,
    port_of_user_agent,
    session_pack,
)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (EngineConfig(port=6881), {"listen_interfaces": "127.0.0.1:6881"}),
        (EngineConfig(port=6881, tls=True), {"listen_interfaces": "127.0.0.1:6881s"}),
        (
            EngineConfig(port=6881, tls=True, plain_too=True, tls_port=6882),
            {"listen_interfaces": "127.0.0.1:6881,127.0.0.1:6882s"},
        ),
        (EngineConfig(), {"upload_rate_limit": 0, "send_buffer_watermark": SEND_BUFFER, "alert_mask": ALERTS}),
        (
            EngineConfig(upload_limit=1_600_000, download_limit=9),
            {"upload_rate_limit": 1_600_000, "download_rate_limit": 9,
             "send_buffer_watermark": 100_000, "send_buffer_low_watermark": 100_000},
        ),
        (EngineConfig(upload_limit=1000), {"send_buffer_watermark": 32 * 1024}),
        (EngineConfig(upload_limit=2**30), {"send_buffer_watermark": SEND_BUFFER}),
    ],
)  # fmt: skip
def test_a_session_listens_and_sends_as_configured(config: EngineConfig, expected: dict[str, Any]) -> None:
    """A host would open another port, or send more than its operator allows."""
    assert expected == {key: session_pack(config, "127.0.0.1")[key] for key in expected}


def test_our_own_connections_come_from_the_address_that_others_accept() -> None:
    """Peers would refuse us, because they accept the addresses of the directory only."""
    assert "127.0.0.1" == session_pack(EngineConfig(), "127.0.0.1")["outgoing_interfaces"]
    assert "outgoing_interfaces" not in session_pack(EngineConfig(), "0.0.0.0")
    assert (0, True) == (one_port("127.0.0.1"), one_port("0.0.0.0") > 1023)


def test_the_configuration_of_a_host_reaches_its_engine() -> None:
    """What an operator writes into [swarm] would change nothing."""
    swarm = SwarmConfig(listen="10.0.0.1", port=1, upload_limit=2, download_limit=3, nice=4, tls_port=5)

    assert EngineConfig("10.0.0.1", 1, 2, 3, 4, tls=True, plain_too=True, tls_port=5) == engine_config(
        swarm, "::", tls=True, plain_too=True
    )
    assert "::" == engine_config(SwarmConfig(), "::", tls=False).listen_host


@pytest.mark.parametrize("client", [b"libtorrent/2 (6881)", b"torrentdist/1 (68810)x", b"torrentdist/1"])
def test_the_port_of_another_client_is_none_of_ours(client: bytes) -> None:
    """A stranger's connection would be booked on a member of the directory."""
    assert port_of_user_agent(client) is None


def test_a_port_that_is_taken_is_named() -> None:
    """An operator would not know which setting to change."""
    error = port_in_use(EngineConfig(listen_host="::1", port=6881), "taken")

    assert ("port_in_use", True, True) == (error.code, "[::1]:6881" in error.message, "the swarm" in error.message)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1-10.0.0.9", "10.0.0.1-10.0.0.9"), ("10.0.0.1-10.0.0.1", "10.0.0.1-10.0.0.1"),
        ("::ffff:10.0.0.1-10.0.0.2", "10.0.0.1-10.0.0.2"), ("10.0.0.9-10.0.0.1", None), ("10.0.0.1-::9", None),
        ("10.0.0.1", None), ("10.0.0.1-x", None), ("a-b-c", None),
    ],
)  # fmt: skip
def test_a_range_has_two_ends_of_one_family(text: str, expected: str | None) -> None:
    """A misspelt range would admit every address, or stop the daemon."""
    assert expected == canonical_range(text)


def test_addresses_of_a_range_are_admitted() -> None:
    """Hosts behind a network's addresses would be refused, or their neighbours accepted."""
    allowed = clean_addresses(["10.0.0.4-10.0.0.6", "2001:db8::1", "nonsense"])
    assert allowed is not None
    asked = ["10.0.0.3", "10.0.0.4", "10.0.0.6", "10.0.0.7", "2001:db8::1", "::a00:5"]

    assert [False, True, True, False, True, False] == [admits(allowed, host) for host in asked]
    assert clean_addresses(None) is None
