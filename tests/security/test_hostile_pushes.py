"""Hostile requests to the gateway's doors for images and S3."""

from __future__ import annotations

import json
import os
import random
import resource
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
from cluster_fixtures import Cluster
from image_layouts import INDEX, MANIFEST, put_image
from process_memory import memory_of
from registry_clients import Registry, new_name, sha256, token_in

from torrentdist.bundle.images.image_layout import blob_path
from torrentdist.bundle.images.image_names import Image
from torrentdist.supervisor.objects.bucket_names import bucket_of

COUNT = int(os.environ.get("FUZZ_REQUESTS", "600"))
PIECES = ["/v2/", "/s3/", "a", "..", "%2e%2e", "/", "//", "blobs", "uploads", "manifests", "tags/list", "referrers"]
PIECES += [
    "sha256:" + "0" * 64,
    "sha256:",
    "%00",
    "%ff",
    "ü",
    "?digest=",
    "&mount=",
    "?list-type=2",
    "&prefix=",
    "&max-keys=-1",
]
PIECES += [
    "?continuation-token=%00",
    "image--x--1",
    "1",
    "_g1",
    "A" * 300,
    "?n=99999999999",
    "?uploads",
    "\t",
    "'",
    "{}",
]
HEADERS = ["range", "content-range", "content-type", "if-match", "authorization", "x-amz-date", "expect"]
VALUES = [
    "bytes=0-",
    "bytes=9-1",
    "0-9",
    "-1",
    "Basic Og==",
    "Basic !!",
    "AWS4-HMAC-SHA256 Credential=a/b",
    "*",
    "\xff",
]
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def test_random_requests_get_no_error_of_the_server(cluster: Cluster) -> None:
    """A request that was not foreseen ends the door for everybody."""
    dice, registry = random.Random(7), Registry(cluster.url("supervisor-1"), ("me", token_in(cluster.dir)))
    wrong = []
    with httpx.Client(trust_env=False, timeout=60.0, auth=registry.auth) as client:
        for _ in range(COUNT):
            path = dice.choice(["/v2/", "/s3/"]) + "/".join(dice.choices(PIECES, k=dice.randrange(6)))
            headers = {
                dice.choice(HEADERS).encode(): dice.choice(VALUES).encode("latin-1") for _ in range(dice.randrange(3))
            }
            method, body = dice.choice(METHODS), dice.randbytes(dice.randrange(60))
            try:
                answer = client.request(method, registry.url + path, content=body, headers=headers)
            except (httpx.InvalidURL, httpx.LocalProtocolError):
                continue
            if answer.status_code >= 500:
                wrong.append((method, path, headers, answer.text[:200]))

    assert [] == wrong


def test_no_header_gets_a_wrong_byte(cluster: Cluster, tmp_path: Path) -> None:
    """A range that is read in two ways would give programs other bytes than were published."""
    dice, registry = random.Random(11), Registry(cluster.url("supervisor-1"), ("me", token_in(cluster.dir)))
    name, data = new_name(), dice.randbytes(700_000)
    layout = tmp_path / "layout"
    image = put_image(layout, [{"data": data}])
    assert 201 == registry.push_layout(name, layout, image, "1").status_code
    digest = json.loads((layout / blob_path(image["digest"])).read_bytes())["layers"][0]["digest"]
    blob = (layout / blob_path(digest)).read_bytes()
    places = [f"/v2/{name}/blobs/{digest}", f"/s3/{bucket_of(Image(name, '1').bundle)}/{blob_path(digest)}"]
    whole = 0
    with httpx.Client(trust_env=False, timeout=60.0) as client:
        for _ in range(max(60, COUNT // 20)):
            headers = {"range": _range(dice, len(blob))} if dice.random() < 0.9 else {}
            if dice.random() < 0.3:
                headers[dice.choice(["if-range", "if-match", "if-none-match"])] = dice.choice(
                    ['"x"', "*", f'"{digest}"']
                )
            answer = client.get(registry.url + dice.choice(places), headers=headers)
            assert answer.status_code in (200, 206, 304, 412, 416), headers
            if answer.status_code == 206:
                first, last = answer.headers["content-range"].removeprefix("bytes ").partition("/")[0].split("-")
                assert blob[int(first) : int(last) + 1] == answer.content, headers
            elif answer.status_code == 200:
                whole += 1
                assert blob == answer.content, headers

    assert whole > 0


def _range(dice: random.Random, size: int) -> str:
    edge = [0, 1, 4095, 4096, 262_143, 262_144, size - 4096, size - 1, size, size + 1, 10**12, dice.randrange(size)]
    one, two = dice.choice(edge), dice.choice(edge)
    forms = [
        f"bytes={one}-{two}",
        f"bytes={one}-",
        f"bytes=-{two}",
        f"bytes={one}-{two},{two}-",
        f"bytes = {one}-{two}",
    ]
    return dice.choice(
        [*forms, f"items={one}-{two}", f"bytes={one}-{two}-", f"bytes=+{one}-{two}", "bytes=", "bytes=a-b"]
    )


def test_two_thousand_connections_leave_a_place_for_others(cluster: Cluster) -> None:
    """One program of a host would end the door for all others, or use up the memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    registry = Registry(cluster.url("supervisor-1"), ("me", token_in(cluster.dir)))
    host, _, port = registry.host.partition(":")
    pid = cluster.dev.member("supervisor-1").pid
    before = memory_of(pid)
    begun = [
        b"",
        b"GET /v2/ HTTP/1.1\r\nHost: x\r\n",
        b"POST /v2/a/blobs/uploads/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n" + b"x" * 1000,
        b"PUT /v2/a/manifests/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\n" + b"x" * 1000,
        b"GET /s3/?prefix=x HTTP/1.1\r\nHost: x\r\n\r\n",
    ]
    with ExitStack() as all_open:
        for number in range(2000):
            one = all_open.enter_context(socket.create_connection((host, int(port)), timeout=30.0))
            with suppress(ConnectionError):
                one.sendall(begun[number % len(begun)])
        answer = registry.ask("GET", "/v2/")
        grown = memory_of(pid) - before

    assert 200 == answer.status_code
    assert grown < 200_000_000
    assert sha256(b"1") == registry.push_blob(new_name(), b"1")


def test_manifests_are_bounded_together(cluster: Cluster) -> None:
    """An index of many large manifests would use up a host's memory."""
    registry, name = Registry(cluster.url("supervisor-1"), ("me", token_in(cluster.dir))), new_name()
    config = registry.push_blob(name, b"{}")
    children = []
    for number in range(9):
        padding = {"n": str(number), "p": "x" * 4_000_000}
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": {"digest": config, "size": 2}, "layers": []}
        data = json.dumps({**manifest, "annotations": padding}).encode()
        assert 201 == registry.push_manifest(name, sha256(data), data, MANIFEST).status_code
        children.append({"mediaType": MANIFEST, "digest": sha256(data), "size": len(data)})
    honest = {"schemaVersion": 2, "mediaType": INDEX, "manifests": children}
    lying = {**honest, "manifests": [{**one, "size": 1} for one in children]}
    for index in (honest, lying):
        answer = registry.push_manifest(name, "1", json.dumps(index).encode(), INDEX)

        assert 400 == answer.status_code
        assert "bytes together" in answer.json()["errors"][0]["message"]


def test_uploads_that_never_end_take_no_more_than_their_share(cluster: Cluster, tmp_path: Path) -> None:
    """One program of a host would keep all others from pushing, or fill memory and disk. It takes
    long: uploads go on until each limit is reached."""
    registry, name = Registry(cluster.url("supervisor-1"), ("me", token_in(cluster.dir))), new_name()
    with ThreadPoolExecutor(16) as many:
        begun = list(many.map(lambda _: registry.ask("POST", f"{name}/blobs/uploads/"), range(300)))
    open_ones = [answer.headers["location"] for answer in begun if answer.status_code == 202]
    refused = [answer.status_code for answer in begun if answer.status_code != 202]
    with ThreadPoolExecutor(16) as many:
        ended = list(many.map(lambda where: registry.ask("DELETE", where).status_code, open_ones))

    assert 250 == len(open_ones)
    assert {429} == set(refused)
    assert {204} == set(ended)
    assert sha256(b"1") == registry.push_blob(name, b"1")
