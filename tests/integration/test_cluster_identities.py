"""A mutual cluster in which every host has a ZooKeeper identity of its own: jobs, moves, images,
and hosts that are shut out or pass for others."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml
from cluster_clients import trusting
from cluster_fixtures import Cluster, make_source, running_cluster, until
from image_layouts import assert_same_blobs, finish, put_image
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from registry_clients import Registry, needs_skopeo, new_name, skopeo
from zookeeper_fixtures import write_auth

from torrentdist.bundle import bencode
from torrentdist.cluster.rebalance import join
from torrentdist.cluster.session.zookeeper_session import ZooKeeper
from torrentdist.master.swarm.swarm_api import MEMBERS_ONLY
from torrentdist.model.configuration.config import ZooKeeperConfig
from torrentdist.model.wire.headers import CLIENT
from torrentdist.security.authority.certificates import facts_of, new_key
from torrentdist.security.authority.invitation import parse_invitation
from torrentdist.security.authority.pem_texts import parse_certificate, parse_key, public_key_pem
from torrentdist.security.certificate_identity import CertificateIdentity, CertificateRole

MANIFEST = Path(__file__).parent.parent.parent / "deploy/kubernetes/supervisors.yaml"
DIGEST = "ab" * 32


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """2 masters and 2 supervisors, as `dev up --tls` starts them. The last test of this file shuts
    one of them out."""
    work = tmp_path_factory.mktemp("identities")
    with running_cluster({}, work=work, masters=2, supervisors=2, tls=True) as cluster:
        cluster.http.close()
        cluster.http = httpx.Client(
            trust_env=False, timeout=60.0, headers=cluster.dev.headers(), verify=cluster.dev.trust()
        )
        yield cluster


@pytest.mark.case("F16")
def test_members_of_a_group_work_with_the_groups_identity_alone(mutual: Cluster, tmp_path: Path) -> None:
    """If this fails, resource groups cannot be used beside identities, or their members can write
    what is not theirs."""
    mutual.run("group", "add", "ingest", "queue-1").ok()
    auth = mutual.run("group", "identity", "ingest").ok()["auth"]
    servers = mutual.dev.state.zookeeper.split(",")
    file = write_auth(tmp_path / "auth", auth.rstrip())

    async def work() -> list[str]:
        given: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()

        async def on_start(resources: object) -> None:
            given.set_result(list(resources))  # type: ignore[call-overload]

        async def on_stop() -> None: ...

        zk = ZooKeeper(ZooKeeperConfig(servers=servers, auth_file=file))
        await zk.start(20.0)
        async with await join(zk, "ingest", on_start=on_start, on_stop=on_stop, member_id="me"):
            async with asyncio.timeout(30.0):
                resources = await given
            members = [
                m["id"] for m in (await asyncio.to_thread(mutual.run, "group", "show", "ingest")).ok()["members"]
            ]
        await zk.close()
        return [*resources, *members]

    assert ["queue-1", "me"] == asyncio.run(work())
    thief = KazooClient(servers[0], auth_data=[("digest", line) for line in auth.split()])
    thief.start(20)
    try:
        for path in ("/groups/ingest/resources/more", "/groups/jobs/barriers/x", "/groups/other", "/assignments/x"):
            with pytest.raises(NoAuthError):
                thief.create(f"/torrentdist{path}")
    finally:
        thief.stop()
        thief.close()


@pytest.mark.case("F6")
def test_a_stolen_certificate_gets_no_other_identity_and_uploads_nothing(mutual: Cluster, tmp_path: Path) -> None:
    """If this fails, whoever breaks into one host becomes another one, or a master."""
    files = mutual.dir / "ca" / "hosts" / "supervisor-1"
    stolen = ssl.create_default_context(cafile=files / "ca.pem")
    stolen.load_cert_chain(files / "certificate.pem", files / "key.pem")
    url = mutual.url(mutual.leader())
    with httpx.Client(trust_env=False, timeout=60.0, verify=stolen, headers={CLIENT: "1"}) as thief:
        own = thief.post(f"{url}/v1/hosts/supervisor-1/place", json={}).json()
        refused = [
            thief.post(f"{url}/v1/hosts/supervisor-2/place", json={}),
            thief.post(f"{url}/v1/hosts/master-1/place", json={}),
            thief.get(f"{url}/v1/zookeeper-auth"),
            thief.get(f"{url}/v1/groups/ingest/identity"),
            thief.post(f"{url}/v1/groups/ingest/resources", json={"resources": ["x"]}),
            thief.put(f"{url}/v1/uploads/evil", content=b"d4:infod4:name1:aee"),
            thief.post(f"{url}/v1/tokens", json={}),
            thief.delete(f"{url}/v1/hosts/supervisor-2"),
        ]
    by_token = mutual.http.post(f"{url}/v1/hosts/supervisor-1/place", json={})

    assert own["auth"] == (files / "zookeeper.auth").read_text()
    assert ("host-supervisor-1", [403] * 8) == (own["user"], [answer.status_code for answer in refused])
    assert 403 == by_token.status_code


def invitation_for(cluster: Cluster, work: Path, host: str, role: str) -> str:
    """Returns the path of an invitation for a host of this machine."""
    told = cluster.run("host", "invite", host, "--role", role, "--address", "127.0.0.1").ok()
    return write_auth(work / "invitation", told["invitation"])


@pytest.mark.case("F6")
def test_a_host_that_joins_gets_its_identity(mutual: Cluster, tmp_path: Path) -> None:
    """If this fails, a host that was invited cannot work in the cluster."""
    own = {name: str(tmp_path / name) for name in ("ca.pem", "certificate.pem", "key.pem", "auth")}
    config = tmp_path / "s9.toml"
    config.write_text(
        f'''[supervisor]\nid = "s9"\ndata_dir = "{tmp_path / "data"}"\nids_dir = ""\n'''
        f'''[zookeeper]\nauth_file = "{own["auth"]}"\n[tls]\nmode = "mutual"\nca_file = "{own["ca.pem"]}"\n'''
        f'''certificate_file = "{own["certificate.pem"]}"\nkey_file = "{own["key.pem"]}"\n'''
    )
    invitation = invitation_for(mutual, tmp_path, "s9", "supervisor")
    for _ in range(2):
        mutual.run("host", "join", "--config", config, "--invitation-file", invitation).ok()
    text, mode = Path(own["auth"]).read_text(), Path(own["auth"]).stat().st_mode

    assert ["host-s9", "readers"] == [line.partition(":")[0] for line in text.splitlines()]
    assert 0 == mode & 0o077


@pytest.mark.case("F6")
def test_a_master_that_joins_gets_the_key_of_the_ca_and_its_identity(mutual: Cluster, tmp_path: Path) -> None:
    """If this fails, a cluster gets no further master by invitation, or one that cannot lead."""
    own = {name: str(tmp_path / name) for name in ("ca.pem", "ca.key", "certificate.pem", "key.pem", "auth")}
    config = tmp_path / "m9.toml"
    config.write_text(
        f'''[master]\nid = "m9"\ndata_dir = "{tmp_path / "data"}"\n[zookeeper]\nauth_file = "{own["auth"]}"\n'''
        f'''[tls]\nmode = "mutual"\nca_file = "{own["ca.pem"]}"\nca_key_file = "{own["ca.key"]}"\n'''
        f'''certificate_file = "{own["certificate.pem"]}"\nkey_file = "{own["key.pem"]}"\n'''
    )
    invitation = invitation_for(mutual, tmp_path, "m9", "master")
    joined = mutual.run("host", "join", "--config", config, "--invitation-file", invitation).ok()
    issuers = parse_certificate(Path(own["ca.pem"]).read_bytes()).public_key()
    auth, others = Path(own["auth"]), mutual.dir / "ca" / "hosts" / "master-1" / "zookeeper.auth"

    assert "master" == joined["role"]
    assert issuers == parse_key(Path(own["ca.key"]).read_bytes()).public_key()
    assert others.read_text().split() == auth.read_text().split()
    assert 0 == auth.stat().st_mode & 0o077


@pytest.mark.case("F6")
def test_a_node_of_kubernetes_gets_what_is_its_own(mutual: Cluster, tmp_path: Path) -> None:
    """If this fails, the pods of a DaemonSet wait for ever, or need a secret that all nodes share.
    The script and the configuration are those of the manifest, with paths in a directory."""
    config_map, *_, daemon_set = yaml.safe_load_all(MANIFEST.read_text())
    (join_it,) = daemon_set["spec"]["template"]["spec"]["initContainers"]
    places = {place for place in re.findall(r"mountPath: (/[\w/]+)", MANIFEST.read_text()) if place != "/tmp"}
    for place in places:
        (tmp_path / place[1:]).mkdir(parents=True, exist_ok=True)

    def here(text: str) -> str:
        return re.sub("|".join(places), lambda found: str(tmp_path / found[0][1:]), text)

    config = here(config_map["data"]["supervisor.toml"])
    masters = ",".join(f'"{mutual.url(name)}"' for name in mutual.masters())
    config = re.sub(r"(masters = )\[[^]]*\]", rf"\g<1>[{masters}]", config)
    (tmp_path / "etc/torrentdist/supervisor.toml").write_text(config)
    invite = ("host", "invite", "node-1", "--role", "supervisor", "--address", "127.0.0.1")
    asked = mutual.run(*invite).ok()
    (tmp_path / "invitations/node-1").write_text(asked["invitation"])
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "NODE_NAME": "node-1", "HOME": str(tmp_path)}
    env |= {"TORRENTDIST_SUPERVISOR_ID": "node-1", "TORRENTDIST_SUPERVISOR_HOST": "127.0.0.1"}
    script = [*join_it["command"][:-1], here(join_it["command"][-1])]
    joined = subprocess.run(script, env=env, capture_output=True, text=True, timeout=120, check=False)
    (tmp_path / "invitations/node-1").unlink()
    restarted = subprocess.run(script, env=env, capture_output=True, text=True, timeout=120, check=False)
    tls = tmp_path / "var/lib/torrentdist/supervisor/tls"

    assert (0, 0) == (joined.returncode, restarted.returncode), joined.stderr + restarted.stderr
    assert "node-1" in {host["id"] for host in mutual.run("host", "ls").ok()}
    assert (tls / "zookeeper.auth").read_text().startswith("host-node-1:")


@needs_skopeo
def test_a_push_in_a_cluster_with_tls(mutual: Cluster, tmp_path: Path) -> None:
    """If this fails, a cluster with certificates takes no images."""
    token = mutual.run("token", "create", "builds", "--role", "uploader").ok()["token"]
    registry, name = Registry(mutual.url("supervisor-1"), ("me", token)), new_name()
    layout = tmp_path / "layout"
    finish(layout, [put_image(layout, [{"etc/one": os.urandom(2_000_000)}])], "1")
    options = ("copy", "--dest-tls-verify=false")
    other = mutual.url("supervisor-2").removeprefix("http://")

    refused = skopeo(*options, f"oci:{layout}:1", f"docker://{registry.host}/{name}:1")
    pushed = skopeo(*options, "--dest-creds", registry.creds, f"oci:{layout}:1", f"docker://{registry.host}/{name}:1")
    pulled = skopeo("copy", "--src-tls-verify=false", f"docker://{other}/{name}:1", f"oci:{tmp_path / 'copy'}:1")

    assert refused.returncode != 0
    assert (0, 0) == (pushed.returncode, pulled.returncode), pushed.stderr + pulled.stderr
    assert_same_blobs(layout, tmp_path / "copy")


@pytest.mark.case("F6")
def test_a_certificate_names_what_its_invitation_says_whatever_is_asked_for(mutual: Cluster) -> None:
    """A host that joins could be any other one: Dragonfly's manager signed certificates for
    whatever address a peer asked for."""
    text = mutual.run("host", "invite", "h9", "--role", "supervisor", "--address", "192.0.2.9").ok()["invitation"]
    asked = {
        "secret": parse_invitation(text, "").secret,
        "public_key": public_key_pem(new_key().public_key()).decode(),
    }
    path = f"{mutual.url(mutual.leader())}/v1/invitations/{{}}/redeem"
    wished = [
        mutual.http.post(path.format("h9"), json={**asked, name: value}).status_code
        for name, value in (("addresses", ["192.0.2.66"]), ("role", "master"), ("id", "master-1"))
    ]
    other = mutual.http.post(path.format("master-1"), json=asked).status_code
    issued = facts_of(parse_certificate(mutual.http.post(path.format("h9"), json=asked).json()["certificate"].encode()))

    assert [400] * 3 == wished
    assert 403 == other
    assert CertificateIdentity("dev", CertificateRole.SUPERVISOR, "h9") == issued.identity
    assert ("192.0.2.9",) == issued.addresses


@pytest.mark.case("F6")
def test_a_host_writes_nothing_at_another_host(mutual: Cluster) -> None:
    """One stolen certificate would write files on every host: Dragonfly's peer API wrote to any
    path that its caller named."""
    supervisor, _ = mutual.get("master-1", "/v1/cluster")["supervisors"]
    paths = [
        f"/v1/metafiles/{DIGEST}",
        "/v1/metafiles/..%2f..%2f..%2ftmp%2fx",
        "/v1/host/prune",
        "/v1/host/bundles/b/fetch",
        "/v1/host/bundles/..%2f..%2fx/verify",
        "/v1/host/jobs/j/0/log",
        "/v1/host/jobs/..%2f..%2fx/0/log",
    ]
    with httpx.Client(
        trust_env=False, timeout=60.0, base_url=supervisor["url"], verify=trusting(mutual, "master-1")
    ) as peer:
        answers = {
            (method, path): peer.request(method, path, content=b"{}", headers={"X-Torrentdist": "1"}).status_code
            for method in ("PUT", "POST", "PATCH", "DELETE")
            for path in paths
        }
        escapes = [peer.get(path).status_code for path in paths if ".." in path]
        reads = peer.get(paths[0]).json()["error"]

    assert {} == {asked: status for asked, status in answers.items() if status not in (404, 405)}
    assert {400, 404} >= set(escapes)
    assert "not_found" == reads


@pytest.mark.case("F6")
@pytest.mark.case("F8")
def test_no_tracker_lets_a_thief_back_into_a_swarm_with_tls(mutual: Cluster, tmp_path: Path) -> None:
    """A host that was shut out, and has kept the key of the tracker URLs and its certificate of the
    swarm, would let its address in again."""
    (tmp_path / "file").write_bytes(b"content")
    made = mutual.run("upload", tmp_path / "file", "--id", "b1", "--min-replicas", 1).ok()["digest"]
    asked = f"{mutual.url(mutual.leader())}/v1/bundles/b1/metafile?tracker=true"
    top = bencode.decode(mutual.http.get(asked).content)
    assert isinstance(top, dict)
    tracker = top[b"announce"]
    assert isinstance(tracker, bytes)
    name = "".join(f"%{byte:02x}" for byte in bytes.fromhex(made)[:20])
    announce = f"{tracker.decode()}?info_hash={name}&peer_id={'p' * 20}&port=7000&left=1"
    with httpx.Client(trust_env=False, timeout=60.0, verify=trusting(mutual)) as thief:
        told = bencode.decode(thief.get(announce).content)

    assert {b"failure reason": MEMBERS_ONLY} == told


@pytest.mark.case("F4")
def test_a_stranger_learns_no_name_of_a_token(mutual: Cluster) -> None:
    """A stranger could list the cluster's users: two unknown names would get the same proof, and a
    known name another one."""
    mutual.run("token", "create", "ann", "--role", "reader").ok()
    url = mutual.url(mutual.leader())

    def told(name: str) -> str:
        asked = {"name": name, "nonce": "n" * 16, "url": url}
        return str(mutual.http.get(f"{url}/v1/proof", params=asked, headers={"Authorization": ""}).text)

    answers = [told(name) for name in ("ann", "eve", "bob")]

    assert 3 == len({*answers, told("eve")})


def hosts_at_work(cluster: Cluster, job: str) -> list[str]:
    """Returns the supervisors on which a job's workers run."""
    view = cluster.get(cluster.leader(), f"/v1/jobs/{job}")
    return [w["supervisor"] for w in view["workers"] if w["state"] == "running"] if view else []


@pytest.mark.case("F6")
def test_a_job_runs_moves_and_leaves_a_host_that_is_shut_out(mutual: Cluster, tmp_path: Path) -> None:
    """If this fails, identities stop the cluster from running jobs, or a revoked host keeps its
    work. It takes long: a cluster with an authority starts, and sessions expire."""
    source = make_source(tmp_path / "source", 81)
    (source / "job.toml").write_text('name = "wc"\ncommand = ["sh", "-c", "sleep 600"]\n')
    mutual.run("job", "submit", source, "--name", "wc").ok()
    (job,) = (job["id"] for job in mutual.run("job", "ls").ok())
    until(lambda: len(hosts_at_work(mutual, job)) == 1, "the worker runs", 60.0)
    (first,) = hosts_at_work(mutual, job)
    mutual.run("supervisor", "drain", first).ok()
    until(lambda: hosts_at_work(mutual, job) not in ([], [first]), "the worker has moved", 60.0)
    (second,) = hosts_at_work(mutual, job)
    mutual.run("supervisor", "undrain", first).ok()
    mutual.run("host", "revoke", second, "--unknown").ok()
    until(lambda: hosts_at_work(mutual, job) == [first], "the worker has left the revoked host", 120.0)
    left = {s["id"] for s in mutual.run("cluster").ok()["supervisors"]}

    assert {first} == left
    assert {first, second} == {"supervisor-1", "supervisor-2"}
