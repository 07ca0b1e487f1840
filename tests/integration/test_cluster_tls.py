"""One mutual cluster, as `dev up --tls` makes it: the first session, a renewal, and mistakes."""

from __future__ import annotations

import re
import ssl
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from cluster_clients import trusting
from cluster_fixtures import Cluster, make_source, picture, running_cluster, until
from swarm_members import RawPeer, joined, stock_session, wire_params

from torrentdist.bundle.metafile import parse_metafile
from torrentdist.host.process.daemon_address import read_address
from torrentdist.model.access.swarm_certificate_messages import SwarmCertificatesView
from torrentdist.security.authority.authority_files import CA_KEY, init_authority, issue_files, read_authority
from torrentdist.security.authority.certificates import facts_of, issue, new_key, renewal_text, sign
from torrentdist.security.authority.membership_files import read_memberships
from torrentdist.security.authority.pem_texts import (
    certificate_pem,
    key_pem,
    parse_certificate,
    parse_key,
    public_key_pem,
)
from torrentdist.security.authority.swarm_authority import memberships_of
from torrentdist.security.certificate_identity import CertificateRole
from torrentdist.security.private_files import read_private, replace_private, write_public

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """2 masters and a supervisor, shared by the tests of this file."""
    work = tmp_path_factory.mktemp("mutual")
    init_authority(work / "cluster" / "ca", "dev", time.time() - 365 * 86_400)
    with running_cluster({}, work=work, masters=2, supervisors=1, tls=True) as cluster:
        cluster.http.close()
        cluster.http = httpx.Client(
            trust_env=False, timeout=10.0, headers=cluster.dev.headers(), verify=trusting(cluster)
        )
        yield cluster


def test_the_first_session_works_over_tls(mutual: Cluster, tmp_path: Path) -> None:
    """A user who follows the README with --tls would be stuck at the first command."""
    source = make_source(tmp_path / "source", 71)
    (source / "job.toml").write_text('name = "wc"\ncommand = ["sh", "-c", "echo counted; sleep 60"]\n')
    uploaded = mutual.run("upload", source, "--id", "wc-1", "--min-replicas", 2).ok()
    spread = mutual.run("bundle", "distribute", "wc-1", "--wait", "100%").ok()
    mutual.run("job", "submit", source, "--name", "wc").ok()
    until(lambda: [j["status"] for j in mutual.run("job", "ls").ok()] == ["active"], "the job is active")
    (job,) = (job["id"] for job in mutual.run("job", "ls").ok())
    until(lambda: "counted" in mutual.run("job", "logs", job).stdout, "its output is read from its host")
    mutual.run("download", "wc-1", tmp_path / "dest", "--no-supervisor").ok()
    view, health = mutual.run("cluster"), mutual.run("doctor").json

    assert (2, 1) == (uploaded["achieved"] and uploaded["replicas"], spread["done"])
    assert picture(source) == picture(tmp_path / "dest")
    assert {"https"} == {m["url"].partition(":")[0] for m in view.ok()["masters"]}
    assert "no TLS" not in view.stderr
    assert [] == [f for f in health["findings"] if f["verdict"] == "fail"]


@pytest.mark.case("F8")
def test_the_swarm_is_for_members_and_a_token_makes_one_for_an_hour(mutual: Cluster, tmp_path: Path) -> None:
    """A stranger with a metafile could read the bundle from any host, or nobody with a token could
    download without a supervisor."""
    mutual.run("upload", make_source(tmp_path / "source", 72), "--id", "swarm-1", "--min-replicas", 2).ok()
    raw = mutual.http.get(f"{mutual.url('master-1')}/v1/bundles/swarm-1/metafile").content
    meta, key = parse_metafile(raw), new_key()
    body = {"public_key": public_key_pem(key.public_key()).decode()}
    answer = mutual.http.post(f"{mutual.url('master-2')}/v1/swarm-certificates", json=body).json()
    (own,) = memberships_of(key, msgspec.convert(answer, SwarmCertificatesView).memberships)
    address = read_address(mutual.dir / "master-1")
    assert address is not None
    with closing(RawPeer(address.swarm_port, meta.digest, None)) as stranger, pytest.raises(ConnectionError):
        stranger.handshake()
    with stock_session(listen_interfaces="127.0.0.1:0s") as session:
        handle = joined(session, wire_params(meta, own.ca, tmp_path / "dest"), own, address.swarm_port)
        until(lambda: handle.status().is_seeding, "a member has downloaded the bundle")

    assert 3000 < own.expires_at - time.time() <= 3600


def test_a_host_without_a_certificate_of_the_swarm_asks_for_one(mutual: Cluster) -> None:
    """A host whose certificates come from elsewhere would never seed or fetch anything."""
    file = mutual.dir / "ca" / "hosts" / "supervisor-1" / "swarm.pem"
    before = read_memberships(file)
    file.unlink()
    until(file.exists, "the supervisor is a member again", 30.0)
    (after,) = read_memberships(file)

    assert before[0].ca == after.ca
    assert 23 * 3600 < after.expires_at - time.time()


@pytest.mark.case("F5")
def test_a_hosts_certificate_heartbeats_and_a_token_does_not(mutual: Cluster) -> None:
    """A stolen token could keep dead workers alive, or a host's certificate upload bundles."""
    url = mutual.url(mutual.leader())
    with httpx.Client(trust_env=False, timeout=60.0, verify=trusting(mutual, "supervisor-1")) as host:
        by_host = [
            host.post(f"{url}/v1/prune", json={}),
            host.get(f"{url}/v1/backup"),
            host.get(f"{url}/v1/revocations"),
        ]
    by_token = mutual.http.get(f"{url}/v1/revocations")

    assert [403, 403, 200] == [answer.status_code for answer in by_host]
    assert (403, "hosts_only") == (by_token.status_code, by_token.json()["error"])


@pytest.mark.case("F6")
def test_a_stolen_host_certificate_speaks_for_its_own_host_alone(mutual: Cluster) -> None:
    """The thief of one host's certificate could move the workers of another host, make
    certificates, or upload what every host then runs.
    """
    url = mutual.url(mutual.leader())
    beats: list[dict[str, Any]] = [
        {"supervisor": id_, "generation": 0, "workers": []} for id_ in ("supervisor-1", "supervisor-2")
    ]
    announces = [
        {"peer": "master-1", "role": "master", "port": 1, "host": "127.0.0.1", "swarms": []},
        {"peer": "supervisor-1", "role": "master", "port": 1, "host": "127.0.0.1", "swarms": []},
        {"peer": "supervisor-2", "role": "supervisor", "port": 1, "host": "127.0.0.1", "swarms": []},
    ]
    with httpx.Client(trust_env=False, timeout=60.0, verify=trusting(mutual, "supervisor-1")) as thief:
        own, foreign = (thief.post(f"{url}/v1/heartbeat", json=beat).status_code for beat in beats)
        posed = [thief.post(f"{url}/v1/swarm", json=announce).status_code for announce in announces]
        changes = [
            thief.get(f"{url}/v1/issuing-key"),
            thief.post(f"{url}/v1/tokens", json={}),
            thief.post(f"{url}/v1/invitations", json={}),
            thief.post(f"{url}/v1/jobs", json={}),
            thief.post(f"{url}/v1/bundles/stolen", content=b"d", headers={"Content-Type": "application/x-bittorrent"}),
            thief.delete(f"{url}/v1/hosts/supervisor-1"),
            thief.delete(f"{url}/v1/bundles/wc-1"),
        ]
    with httpx.Client(trust_env=False, timeout=60.0, verify=trusting(mutual, "master-1")) as master:
        by_master = master.post(f"{url}/v1/heartbeat", json=beats[0]).status_code

    assert (200, 403, 403) == (own, foreign, by_master)
    assert [403] * 3 == posed
    assert [403] * len(changes) == [answer.status_code for answer in changes]


def test_mistakes_of_a_client_are_named(mutual: Cluster, tmp_path: Path) -> None:
    """A user with the wrong CA or scheme would search for a broken network."""
    init_authority(tmp_path / "other", "other", time.time())
    plain = mutual.url("master-1").replace("https://", "http://")
    foreign = mutual.run("cluster", client__ca_file=tmp_path / "other" / "ca.pem")
    mistaken = mutual.run("cluster", client__masters=plain)

    assert (5, 5) == (foreign.code, mistaken.code)
    assert "not of the CA that we trust" in foreign.stderr
    assert "is it an https:// URL?" in mistaken.stderr


@pytest.mark.case("F7")
def test_a_renewed_certificate_is_taken_while_requests_go_on(mutual: Cluster) -> None:
    """Each month every daemon would have to be started again."""
    address = mutual.url("master-1")
    port = int(address.rpartition(":")[2])
    certificate = mutual.dir / "ca" / "hosts" / "master-1" / "certificate.pem"
    before = ssl.get_server_certificate(("127.0.0.1", port), ca_certs=str(mutual.dir / "ca" / "ca.pem"))
    statuses = [mutual.http.get(f"{address}/readyz").status_code]
    certificate.unlink()  # `ca issue` would keep one that is so young
    issue_files(mutual.dir / "ca", CertificateRole.MASTER, "master-1", ["127.0.0.1"], None, time.time())
    fresh = certificate.read_text().strip()

    def shown() -> str:
        statuses.append(mutual.http.get(f"{address}/readyz").status_code)
        return ssl.get_server_certificate(("127.0.0.1", port), ca_certs=str(mutual.dir / "ca" / "ca.pem")).strip()

    assert before.strip() != fresh
    until(lambda: shown() == fresh, "the new certificate is shown")
    assert {200} == set(statuses)


def invited_config(cluster: Cluster, home: Path, id_: str) -> Path:
    """The configuration of a supervisor that has not joined yet."""
    home.mkdir()
    client = (cluster.dir / "client.toml").read_text()
    kept = "\n".join(line for line in client.splitlines() if line.startswith(("[", "masters", "servers")))
    path = home / "supervisor.toml"
    path.write_text(f"""{kept}
[supervisor]
id = "{id_}"
data_dir = "{home / "data"}"
ids_dir = "{home / "ids"}"
gateway_port = 0
[tls]
mode = "mutual"
ca_file = "{home / "tls" / "ca.pem"}"
certificate_file = "{home / "tls" / "certificate.pem"}"
key_file = "{home / "tls" / "key.pem"}"
""")
    return path


def secret_file(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.mark.case("F15", "I5")
def test_a_host_joins_by_invitation_and_is_out_within_seconds_of_its_revocation(
    mutual: Cluster, tmp_path: Path
) -> None:
    """A host could not be added without the CA's key at hand, or a stolen one not be shut out."""
    config = invited_config(mutual, tmp_path / "s9", "s9")
    asked = mutual.run("host", "invite", "s9", "--role", "supervisor", "--address", "127.0.0.1").ok()
    file = secret_file(tmp_path / "invitation", asked["invitation"])
    joined = mutual.run("host", "join", "--config", config, "--invitation-file", file).ok()
    again = mutual.run("host", "join", "--config", config, "--invitation-file", file).ok()
    second = mutual.run(
        "host", "join", "--config", invited_config(mutual, tmp_path / "thief", "s9"), "--invitation-file", file
    )
    states = {row["id"]: row["state"] for row in mutual.run("host", "ls").ok()}
    url = mutual.url(mutual.leader())
    own = ssl.create_default_context(cafile=joined["ca_file"])
    own.load_cert_chain(joined["certificate_file"], joined["key_file"])
    with httpx.Client(trust_env=False, timeout=60.0, verify=own) as host:
        before = host.get(f"{url}/v1/revocations").status_code
        key = host.get(f"{url}/v1/issuing-key")
        mutual.run("host", "revoke", "s9").ok()
        until(lambda: host.get(f"{url}/v1/revocations").status_code == 403, "the kept connection is refused", 5.0)
        after = host.get(f"{url}/v1/cluster").json()
    taken = mutual.run("host", "join", "--config", config, "--invitation-file", file)

    assert (joined["serial"], "s9") == (again["serial"], again["id"])
    assert "used, for another key" in second.stderr
    assert ("live", 200, 403) == (states["s9"], before, key.status_code)
    assert "host_revoked" == after["error"]
    assert (4, True) == (taken.code, "its certificate was revoked" in taken.stderr)


def test_the_metrics_of_each_daemon_tell_when_its_certificate_expires(mutual: Cluster) -> None:
    """A certificate that nobody renews would expire without an alarm."""
    (supervisor,) = mutual.get("master-1", "/v1/cluster")["supervisors"]
    told = {}
    with httpx.Client(trust_env=False, timeout=60.0, verify=trusting(mutual, "master-1")) as host:
        for name, url in (("master-2", mutual.url("master-2")), ("supervisor-1", supervisor["url"])):
            (line,) = re.findall(
                r"(?m)^torrentdist_certificate_expiry_timestamp_seconds\S* (\S+)$", host.get(f"{url}/metrics").text
            )
            told[name] = float(line)
    files = {name: mutual.dir / "ca" / "hosts" / name / "certificate.pem" for name in told}

    assert {name: facts_of(parse_certificate(path.read_bytes())).expires_at for name, path in files.items()} == told


def test_a_download_is_resumed_while_no_master_answers(mutual: Cluster, tmp_path: Path) -> None:
    """A user whose download was interrupted would have to wait for a master, although other hosts
    have the bundle."""
    source = make_source(tmp_path / "source", 79, 5 * MIB)
    mutual.upload(source, "go-on", 2)
    mutual.run("bundle", "distribute", "go-on", "--wait", "100%").ok()
    words = ("download", "go-on", tmp_path / "dest", "--no-supervisor")
    cut = mutual.run(*words, "--timeout", "3s", swarm__download_limit=MIB)
    (kept,) = tmp_path.glob(".dest*/swarm.pem")
    mode = stat.S_IMODE(kept.stat().st_mode)
    mutual.kill(*mutual.masters())
    resumed = mutual.run(*words, client__deadline_secs=1)
    mutual.heal()

    assert (6, 0o600) == (cut.code, mode)
    assert resumed.ok()["sources"]["peers"] > 0
    assert picture(source) == picture(tmp_path / "dest")
    assert [] == [*tmp_path.glob(".dest*")]


@pytest.mark.case("F6")
def test_a_certificate_is_renewed_for_its_holder_and_nobody_else(mutual: Cluster, tmp_path: Path) -> None:
    """A stranger would get a host's certificate, or a host none after a month."""
    authority, out = mutual.dir / "ca", tmp_path / "s8"
    issue_files(authority, CertificateRole.SUPERVISOR, "s8", ["127.0.0.1"], out, time.time())
    certificate, key = (
        parse_certificate((out / "certificate.pem").read_bytes()),
        parse_key(read_private(out / "key.pem")),
    )
    url, pem = mutual.url(mutual.leader()), certificate_pem(certificate).decode()
    signed, forged = (sign(each, renewal_text(certificate)) for each in (key, new_key()))
    with httpx.Client(trust_env=False, timeout=60.0, verify=trusting(mutual)) as anybody:
        stranger = anybody.post(f"{url}/v1/hosts/s8/renew", json={"certificate": pem, "signature": forged})
        other = anybody.post(f"{url}/v1/hosts/s7/renew", json={"certificate": pem, "signature": signed})
        renewed = anybody.post(f"{url}/v1/hosts/s8/renew", json={"certificate": pem, "signature": signed})
    fresh = parse_certificate(renewed.json()["certificate"].encode())

    assert ["certificate_refused"] * 2 == [stranger.json()["error"], other.json()["error"]]
    before, after = facts_of(certificate), facts_of(fresh)
    assert (before.identity, before.addresses) == (after.identity, after.addresses)
    assert certificate.public_key() == fresh.public_key()
    assert before.serial != after.serial


CERTIFICATE = Path("ca/hosts/supervisor-1/certificate.pem")


def aged(cluster: Cluster, days: int) -> bytes:
    """Returns the supervisor's certificate as it would be if it were so old."""
    present = parse_certificate((cluster.dir / CERTIFICATE).read_bytes())
    facts = facts_of(present)
    assert facts.identity is not None
    begins_at = time.time() - days * 86_400
    authority = read_authority(cluster.dir / "ca")
    return certificate_pem(issue(authority, facts.identity, facts.addresses, present.public_key(), begins_at))


def test_a_daemon_renews_an_expired_certificate_by_itself(mutual: Cluster) -> None:
    """After a control outage of a month every host would have to be visited."""
    path = mutual.dir / CERTIFICATE
    facts = facts_of(parse_certificate(path.read_bytes()))
    write_public(path, aged(mutual, 31))

    def renewed() -> bool:
        return facts_of(parse_certificate(path.read_bytes())).expires_at > time.time()

    until(renewed, "the supervisor has a new certificate", 30.0)
    rows = {row["id"]: row for row in mutual.run("host", "ls").ok()}
    fresh = facts_of(parse_certificate(path.read_bytes()))

    assert (facts.identity, facts.addresses) == (fresh.identity, fresh.addresses)
    assert ("live", fresh.serial) == (rows["supervisor-1"]["state"], rows["supervisor-1"]["serial"])


@pytest.mark.case("F7")
def test_hosts_are_members_under_both_cas_while_the_swarms_ca_is_rotated(mutual: Cluster, tmp_path: Path) -> None:
    """An operator who rotates the key could not know when each host serves both CAs."""
    keys, hosts = mutual.dir / "ca" / "ca.key", mutual.dir / "ca" / "hosts"
    old, new = keys.read_bytes(), new_key()

    def counts() -> list[int]:
        files = [hosts / name / "swarm.pem" for name in ("master-1", "master-2", "supervisor-1")]
        return [len(read_memberships(file)) for file in files]

    replace_private(keys, old + key_pem(new))
    (hosts / "supervisor-1" / "swarm.pem").unlink()  # so that it asks at once
    until(lambda: counts() == [2, 2, 2], "every host has both certificates", 30.0)
    mutual.run("upload", make_source(tmp_path / "source", 73), "--id", "rotated", "--min-replicas", 2).ok()
    replace_private(keys, old)
    (hosts / "supervisor-1" / "swarm.pem").unlink()
    until(lambda: counts() == [1, 1, 1], "the new CA is gone again", 30.0)
    spread = mutual.run("bundle", "distribute", "rotated", "--wait", "100%").ok()

    assert 1 == spread["done"]


def test_a_certificate_that_nobody_renews_is_named_within_30_s(mutual: Cluster) -> None:
    """If this fails, all is well until nobody trusts the host any more. It comes last: after a
    failed renewal the host pauses for minutes."""
    path, key = mutual.dir / CERTIFICATE, mutual.dir / "ca" / CA_KEY
    young, old = path.read_bytes(), aged(mutual, 28)
    aside = key.rename(key.with_suffix(".aside"))
    try:
        write_public(path, old)

        def named() -> list[str]:
            page = mutual.get("master-1", "/ui/?format=json")
            return [name for entry in page["attention"] if entry["what"] == "expiring" for name in entry["subjects"]]

        def told() -> list[str]:
            found = [f["detail"] for f in mutual.run("doctor").json["findings"] if f["check"] == "certificate"]
            return [detail for detail in found if "supervisor-1" in detail]

        until(lambda: named() == ["supervisor-1"], "the Overview names it", 30.0)
        until(
            lambda: told() == ["expiring: supervisor-1: its certificate ends in 2 days"], "doctor says until when", 30.0
        )
    finally:
        aside.rename(key)
        write_public(path, young)
    until(lambda: named() == [], "it has a young one again", 30.0)
