"""URLs with capabilities at a node's gateway for pods, in real clusters."""

from __future__ import annotations

import io
import os
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from cluster_clients import trusting
from cluster_fixtures import Cluster, files_of_daemons, make_source, running_cluster, until
from image_layouts import finish, put_image
from registry_clients import Registry

from torrentdist.host.process.listening_sockets import free_ports
from torrentdist.model.access.url_messages import UrlTrustView
from torrentdist.security.capabilities import PARAMETER, Capability, sign_capability, signing_key

DATA = os.urandom(300_000)


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """2 masters and a supervisor that serves pods, with the bundles etl-1, etl-2 and web-1."""
    work, port = tmp_path_factory.mktemp("pods"), free_ports(1)[0]
    settings = {"supervisor": {"pod_listen": "127.0.0.1", "pod_port": port}}
    with running_cluster(settings, work=work, masters=2, supervisors=1) as cluster:
        for name in ("etl-1", "etl-2", "web-1"):
            source = work / name
            (source / "data").mkdir(parents=True)
            (source / "data" / "a.bin").write_bytes(name.encode() + DATA)
            (source / "secret.txt").write_text("beside")
            cluster.run("upload", source, "--id", name, "--min-replicas", 1).ok()
        cluster.pod_gateway = f"http://127.0.0.1:{port}"  # type: ignore[attr-defined]
        yield cluster


def base(cluster: Cluster) -> str:
    return str(cluster.pod_gateway)  # type: ignore[attr-defined]


def url_of(cluster: Cluster, *args: object) -> dict[str, str]:
    made: dict[str, str] = cluster.run("url", *args, "--gateway", base(cluster)).ok()
    return made


def get(url: str, **headers: str) -> httpx.Response:
    return httpx.get(url, trust_env=False, timeout=30.0, headers=headers)


def refusal(url: str) -> tuple[int, str]:
    answer = get(url)
    return answer.status_code, str(answer.json()["error"])


def opened(url: str) -> httpx.Response:
    """Returns the first answer after the gateway has heard of the key."""
    until(lambda: get(url).status_code != 503, "the gateway knows the key", 20.0)
    return get(url)


def s3_client(key: str, endpoint: str) -> Any:
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=key, aws_secret_access_key="any",
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
    )  # fmt: skip


def test_a_capability_is_an_access_key_of_s3(pods: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods could not use S3 libraries; or a key for one path would open others."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    whole, part = url_of(pods, "etl-*"), url_of(pods, "etl-1", "--path", "data")
    opened(url_of(pods, "etl-1")["url"])
    all_of_it, data, nobody = (
        s3_client(key, f"{base(pods)}/s3")
        for key in (whole["url"].partition(f"{PARAMETER}=")[2], part["url"].partition(f"{PARAMETER}=")[2], "any")
    )
    signed = all_of_it.generate_presigned_url("get_object", {"Bucket": "etl-2", "Key": "secret.txt"})

    assert {"etl-1", "etl-2"} == {bucket["Name"] for bucket in all_of_it.list_buckets()["Buckets"]}
    assert b"beside" == all_of_it.get_object(Bucket="etl-1", Key="secret.txt")["Body"].read() == get(signed).content
    assert b"etl-1" == data.get_object(Bucket="etl-1", Key="data/a.bin", Range="bytes=0-4")["Body"].read()
    listed = data.list_objects_v2(Bucket="etl-1", Prefix="data/")["Contents"]
    assert ["data/a.bin"] == [entry["Key"] for entry in listed]
    for client, call, given in (
        (all_of_it, "get_object", {"Bucket": "web-1", "Key": "secret.txt"}),
        (data, "get_object", {"Bucket": "etl-1", "Key": "secret.txt"}),
        (data, "get_object", {"Bucket": "etl-1", "Key": "data/../secret.txt"}),
        (data, "list_objects_v2", {"Bucket": "etl-1"}),
        (data, "list_objects_v2", {"Bucket": "etl-1", "Prefix": "data"}),
        (nobody, "list_objects_v2", {"Bucket": "etl-1"}),
        (all_of_it, "put_object", {"Bucket": "etl-1", "Key": "new", "Body": b"1"}),
    ):
        with pytest.raises(ClientError):
            getattr(client, call)(**given)


def test_a_capability_is_the_password_of_a_registry(pods: Cluster, tmp_path: Path) -> None:
    """Nodes' runtimes could not pull from the gateway for pods."""
    layout = tmp_path / "layout"
    image = put_image(layout, [{"file": b"1"}])
    pods.run("upload", finish(layout, [image], "1"), "--id", "image--app--1", "--min-replicas", 1).ok()
    key = url_of(pods, "image--app--*")["url"].partition(f"{PARAMETER}=")[2]
    other = url_of(pods, "etl-1")["url"].partition(f"{PARAMETER}=")[2]
    opened(url_of(pods, "etl-1")["url"])

    puller, stranger, nobody = (Registry(base(pods), ("pod", one)) for one in (key, other, "wrong"))

    assert [200, 200, 401] == [one.ask("GET", "/v2/").status_code for one in (puller, stranger, nobody)]
    assert 'Basic realm="torrentdist"' == nobody.ask("GET", "/v2/").headers["www-authenticate"]
    manifest = puller.ask("GET", "app/manifests/1")
    assert image["digest"] == manifest.headers["docker-content-digest"]
    assert 200 == puller.ask("GET", f"app/blobs/{manifest.json()['config']['digest']}").status_code
    assert [404, 404] == [
        stranger.ask("GET", path).status_code
        for path in ("app/manifests/1", f"app/blobs/{manifest.json()['config']['digest']}")
    ]
    assert 405 == puller.ask("POST", "app/blobs/uploads").status_code


def all_text(cluster: Cluster) -> str:
    """Everything that the daemons have written: logs, events and records of theirs on disk."""
    return "\n".join(content.decode(errors="replace") for content in files_of_daemons(cluster.dir).values())


def test_a_url_opens_its_bundle_as_archive_and_files_with_ranges(pods: Cluster) -> None:
    """Pods without a token could not start with what they need."""
    whole, part = url_of(pods, "etl-1"), url_of(pods, "etl-1", "--path", "data")
    archive = opened(whole["url"])
    file = part["url"].replace("/files/data?", "/files/data/a.bin?")
    with tarfile.open(fileobj=io.BytesIO(archive.content)) as tar:
        inside = tar.extractfile("data/a.bin").read()  # type: ignore[union-attr]
    ranged = get(file, range="bytes=3-9")

    assert (200, b"etl-1" + DATA) == (archive.status_code, inside)
    assert (206, (b"etl-1" + DATA)[3:10]) == (ranged.status_code, ranged.content)
    assert 200 == httpx.head(file, trust_env=False).status_code
    assert whole["name"] in [token["name"] for token in pods.run("token", "ls").ok()]


def test_there_is_nothing_without_a_capability_or_beyond_it(pods: Cluster) -> None:
    """A pod without rights could read bundles, or somebody with a URL for one file all of them."""
    whole, part = url_of(pods, "etl-1"), url_of(pods, "etl-1", "--path", "data")
    opened(whole["url"])
    query = whole["url"].partition("?")[2]
    anonymous = [
        refusal(f"{base(pods)}{path}")
        for path in ("/", "/livez", "/metrics", "/v1/host/bundles", "/bundles/etl-1/etl-1.tar", "/none", "/simple/")
    ]
    token = get(f"{base(pods)}/bundles/etl-1/etl-1.tar", **pods.dev.headers())
    elsewhere = [
        whole["url"].replace("/etl-1/", "/web-1/"),
        whole["url"].replace("/etl-1/", "/never-1/"),
        part["url"].replace("/files/data?", "/files/secret.txt?"),
        part["url"].replace("/files/data?", "/files/data/%2e%2e/secret.txt?"),
        part["url"].replace("/files/data?", "/etl-1.tar?"),
    ]
    controls = [get(f"{base(pods)}{path}?{query}").status_code for path in ("/v1/host/bundles", "/metrics", "/livez")]

    assert {(401, "url_invalid")} == set(anonymous)
    assert 401 == token.status_code
    assert {(404, "bundle_not_found")} == {refusal(url) for url in elsewhere}
    assert [404, 404, 404] == controls
    assert (401, "url_invalid") == refusal(f"{whole['url']}&{PARAMETER}=x")


def test_a_pattern_opens_all_that_match_it(pods: Cluster) -> None:
    """A pipeline would need a new URL for each version."""
    made = url_of(pods, "etl-*")
    opened(made["url"].replace("/ID/ID", "/etl-2/etl-2"))

    assert 200 == get(made["url"].replace("/ID/ID", "/etl-2/etl-2")).status_code
    assert (404, "bundle_not_found") == refusal(made["url"].replace("/ID/ID", "/web-1/web-1"))


def test_expired_tampered_and_foreign_urls_are_refused(pods: Cluster) -> None:
    """A URL would open bundles for ever, or to somebody who made it."""
    short = url_of(pods, "etl-1", "--ttl", "8s")["url"]
    assert 200 == opened(short).status_code
    until(lambda: refusal(short) == (401, "url_expired") if get(short).status_code != 200 else False, "it ends", 20.0)
    good = url_of(pods, "etl-1")["url"]
    where, _, text = good.partition(f"{PARAMETER}=")
    other_cluster = sign_capability(
        Capability(cluster="other", name="url-1", bundles="*", path="", until=int(time.time()) + 60),
        signing_key("another cluster's secret", ""),
    )
    tampered = [text[:-3] + "abc", text[1:], text + "A", text.replace(".", ""), other_cluster, ""]

    assert {(401, "url_invalid")} == {refusal(f"{where}{PARAMETER}={each}") for each in tampered}


def test_a_revoked_url_ends_within_ten_seconds_and_others_do_not(pods: Cluster) -> None:
    """A URL that has leaked could not be stopped."""
    leaked, other = url_of(pods, "etl-1"), url_of(pods, "etl-1")
    opened(leaked["url"])
    pods.run("token", "revoke", leaked["name"]).ok()
    began = time.monotonic()
    until(lambda: get(leaked["url"]).status_code == 401, "it is refused", 10.0)

    assert (401, "url_revoked") == refusal(leaked["url"])
    assert time.monotonic() - began < 10
    assert 200 == get(other["url"]).status_code


def test_the_urls_of_a_revoked_token_end_with_it(pods: Cluster, tmp_path: Path) -> None:
    """URLs made with a stolen token would outlive it."""
    made = pods.run("token", "create", "ann", "--role", "reader", "--bundles", "etl-*", "--ttl", "1h").ok()
    file = tmp_path / "token"
    file.write_text(made["token"])
    file.chmod(0o600)
    url = url_of_token(pods, file, "etl-1")
    hidden = pods.run("url", "web-1", "--gateway", base(pods), client__token_file=str(file))
    pattern = pods.run("url", "*", "--gateway", base(pods), client__token_file=str(file))
    assert 200 == opened(url["url"]).status_code
    pods.run("token", "revoke", "ann").ok()
    until(lambda: get(url["url"]).status_code == 401, "its URL is refused", 10.0)

    assert (3, 4) == (hidden.code, pattern.code)
    assert float(url["expires_at"]) <= made["expires_at"]


def url_of_token(cluster: Cluster, file: Path, bundle: str) -> dict[str, str]:
    made: dict[str, str] = cluster.run("url", bundle, "--gateway", base(cluster), client__token_file=str(file)).ok()
    return made


def test_a_new_key_ends_all_urls_and_signs_new_ones(pods: Cluster) -> None:
    """A key that was stolen would be good for ever."""
    before = url_of(pods, "etl-1")["url"]
    assert 200 == opened(before).status_code
    pods.run("key", "rotate-urls").ok()
    until(lambda: refusal(before) == (401, "url_invalid") if get(before).status_code == 401 else False, "old", 10.0)

    assert 200 == get(url_of(pods, "etl-1")["url"]).status_code


def test_no_log_event_or_file_of_a_daemon_has_a_capability(pods: Cluster) -> None:
    """A reader of logs could read bundles."""
    made = url_of(pods, "etl-1")["url"]
    opened(made)
    text = made.partition(f"{PARAMETER}=")[2]
    payload, signature = text.split(".")
    refusal(made.replace("/etl-1/", "/never-1/"))
    refusal(made[:-4])
    get(made, **{"user-agent": "Java/17"})
    get(made.replace(".tar.gz", ".nothing"))
    until(lambda: "url_invalid" in all_text(pods), "the audit has told of refusals", 10.0)
    written = all_text(pods)

    assert not any(part in written for part in (payload, signature[:40], PARAMETER + "="))


def test_urls_go_on_without_masters_and_after_a_restart(tmp_path: Path) -> None:
    """Pods could not start while masters are away. It also shows HTTPS, and that neither the
    certificate of a host nor that of a person opens anything. It takes long for its cluster with
    certificates."""
    port = free_ports(1)[0]
    settings = {"supervisor": {"pod_listen": "127.0.0.1", "pod_port": port, "pod_tls": True}}
    with running_cluster(settings, work=tmp_path, masters=1, supervisors=1, tls=True) as cluster:
        cluster.run("upload", make_source(tmp_path / "source", 7), "--id", "env-1", "--min-replicas", 1).ok()
        url = cluster.run("url", "env-1", "--gateway", f"https://127.0.0.1:{port}").ok()["url"]
        with httpx.Client(trust_env=False, timeout=30.0, verify=trusting(cluster)) as client:
            until(lambda: client.get(url).status_code == 200, "the URL works", 20.0)
            host = cluster.dir / "ca" / "hosts" / "supervisor-1"
            context = trusting(cluster)
            context.load_cert_chain(host / "certificate.pem", host / "key.pem")
            with httpx.Client(trust_env=False, verify=context) as by_host:
                alone = by_host.get(url.partition("?")[0]).status_code
                trust = by_host.get(f"{cluster.url('master-1')}/v1/urls/trust").json()
            person = client.get(f"{cluster.url('master-1')}/v1/urls/trust", headers=cluster.dev.headers()).status_code
            cluster.kill("master-1", "supervisor-1")
            cluster.start("supervisor-1")
            until(lambda: client.get(url).status_code == 200, "the URL works without a master", 20.0)
            written = all_text(cluster)

    assert (401, 403) == (alone, person)
    assert url.partition(f"{PARAMETER}=")[2].partition(".")[0] not in written  # ZooKeeper's files too
    assert set(UrlTrustView.__struct_fields__) <= set(trust)
