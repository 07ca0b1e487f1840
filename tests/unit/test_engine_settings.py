"""The table of libtorrent settings, and what peers tell each other in their user agent."""

from __future__ import annotations

from typing import Any

import libtorrent as lt
import pytest

from torrentdist.swarm.engine.connections import clean_addresses, filter_for
from torrentdist.swarm.engine.session_settings import (
    SETTINGS,
    EngineConfig,
    disk_threads,
    listen_interface,
    new_session,
    port_of_user_agent,
    session_pack,
    user_agent,
)


def test_every_setting_exists_and_has_a_reason() -> None:
    """If this failed, a misspelt key would be ignored silently, or nobody would dare to change a
    value."""
    known = lt.default_settings()

    assert [s.key for s in SETTINGS if s.key not in known or len(s.reason) < 15] == []
    assert len({s.key for s in SETTINGS}) == len(SETTINGS)


def test_the_session_gets_every_setting() -> None:
    """If this failed, the table would have no effect."""
    pack = session_pack(EngineConfig(), "127.0.0.1")

    assert {s.key: s.value for s in SETTINGS} == {s.key: pack[s.key] for s in SETTINGS}


@pytest.mark.parametrize("rate", [2**31 - 1, 2**31, 3 * 10**9, 2**50])
def test_no_limit_is_too_high_for_libtorrent(rate: int) -> None:
    """If this fails, a host with `swarm.upload_limit = 3000000000` has no limit at all."""
    session = new_session(session_pack(EngineConfig(upload_limit=rate, download_limit=rate), "127.0.0.1"))
    settings: Any = session.get_settings()

    assert [2**31 - 1] * 2 == [settings[key] for key in ("upload_rate_limit", "download_rate_limit")]


def test_there_are_as_many_disk_threads_as_processors_can_use() -> None:
    """If this failed, each block would wake threads that find nothing to do, or one slow read would
    hold up all."""
    made = [tuple(disk_threads(processors).values()) for processors in (1, 2, 3, 4, 64)]

    assert [(2, 1), (2, 1), (3, 1), (4, 2), (4, 2)] == made
    assert disk_threads(64).keys() <= dict(lt.default_settings()).keys()


def test_a_user_agent_tells_the_listening_port() -> None:
    """If this failed, an accepted connection could not be matched with a peer of the directory."""
    assert 6881 == port_of_user_agent(user_agent(6881).encode())


@pytest.mark.parametrize("client", [b"", b"libtorrent/2.1.1.0", b"torrentdist/1 (x)", b"torrentdist/1 (1234567)"])
def test_other_user_agents_tell_nothing(client: bytes) -> None:
    """If this failed, a stranger's client would be taken for a member, or break the bookkeeping."""
    assert port_of_user_agent(client) is None


def test_only_named_addresses_pass() -> None:
    """If this failed, the swarm would be open to everybody, or closed to a master with two families
    of addresses."""
    rules = filter_for(clean_addresses(["10.0.0.1", "::ffff:10.0.0.2", "2001:db8::1", "host.example"]))
    asked = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1", "2001:db8::2"]

    assert [0, 0, 1, 0, 1] == [rules.access(address) for address in asked]


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_engine_that_listens_everywhere_has_one_port(host: str) -> None:
    """libtorrent would use a different port on each address: the others would be told
    loopback's."""
    pack = session_pack(EngineConfig(listen_host=host), host)
    port = port_of_user_agent(str(pack["user_agent"]).encode())

    assert port
    assert pack["listen_interfaces"] == listen_interface(host, port)


def test_an_engine_on_one_address_leaves_its_port_to_libtorrent() -> None:
    """Another process could take a port between our choice and libtorrent's."""
    pack = session_pack(EngineConfig(), "127.0.0.1")

    assert "127.0.0.1:0" == pack["listen_interfaces"]
