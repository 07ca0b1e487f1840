"""The lab's cluster with mutual TLS: what its daemons and its operator's commands are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.lab.namespaces import Host
from bench.swarm.cluster_access import MutualTls
from bench.swarm.lab_run import case_of, make_parser
from bench.swarm.scenario import Scenario
from torrentdist.model.configuration.config import Config
from torrentdist.model.configuration.settings import load
from torrentdist.security.authority.certificates import facts_of
from torrentdist.security.authority.pem_texts import parse_certificate

HOST = Host("s3", "10.77.1.4", "v4", "")


def config_of(directory: Path, text: str) -> Config:
    file = directory / "config.toml"
    file.write_text(text)
    return load(config_file=file, environ={}).config


@pytest.mark.parametrize("role", ["master", "supervisor"])
def test_a_daemon_of_a_mutual_lab_proves_its_own_address(tmp_path: Path, role: str) -> None:
    """The row would compare plain HTTP with plain HTTP, or no host could reach another."""
    access = MutualTls(tmp_path / "ca")
    config = config_of(tmp_path, f'[api]\nlisten = "{HOST.address}"\n{access.daemon_settings(HOST, role)}')
    facts = facts_of(parse_certificate(Path(config.tls.certificate_file).read_bytes()))

    assert ("mutual", "", False) == (config.tls.mode, config.swarm.tls, config.api.insecure_listen)
    assert ((HOST.address,), role) == (facts.addresses, facts.identity and facts.identity.role.value)
    assert (role == "master") == bool(config.tls.ca_key_file)


def test_the_operator_of_a_mutual_lab_never_sends_the_token_in_the_clear(tmp_path: Path) -> None:
    """Commands would not use TLS, which is what the row measures."""
    access = MutualTls(tmp_path / "ca")
    client = config_of(tmp_path, f"[client]\n{access.client_settings()}").client

    assert "https" == access.scheme
    assert (False, True) == (client.token_in_the_clear, Path(client.ca_file).exists())


def test_the_base_run_differs_in_nothing_but_what_is_compared() -> None:
    """Eight hosts with TLS would be compared with sixteen without."""
    case = case_of(make_parser().parse_args(["--scenario", "tls", "--hosts", "8", "--rate", "4"]))

    assert Scenario(hosts=8, rate=4.0, tls=True) == case.scenario
    assert Scenario(hosts=8, rate=4.0) == case.base


def test_a_run_that_compares_numbers_of_hosts_keeps_the_number_of_its_base() -> None:
    """A crowd would be compared with a crowd."""
    case = case_of(make_parser().parse_args(["--scenario", "crowd", "--hosts", "32", "--size", "8"]))

    assert Scenario(hosts=32, rate=10.0, size=8) == case.scenario
    assert Scenario(hosts=16, rate=10.0, size=8) == case.base


def test_a_lab_can_ask_for_tls_without_a_named_case() -> None:
    """The cost could not be looked at with other hosts, rates and sizes."""
    assert case_of(make_parser().parse_args(["--hosts", "4", "--tls"])).scenario == Scenario(hosts=4, tls=True)
