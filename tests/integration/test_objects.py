"""The gateway as S3, read with the real clients."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
import s3fs
from botocore.config import Config
from botocore.exceptions import ClientError
from cluster_fixtures import Cluster, make_source, running_cluster, until
from patience import patient
from pyarrow import fs  # type: ignore[import-untyped]
from uploaded_bundles import Put

PAGE = Path(__file__).parent.parent.parent / "docs" / "objects.md"
LIMIT = 1024 * 1024
"""Bytes per second that the only master sends, so that an arrival takes long enough to observe."""
MANY = 1005
"""More objects than one answer of S3 lists."""


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def endpoint(cluster: Cluster) -> str:
    return f"{cluster.url('supervisor-1')}/s3"


def new_name() -> str:
    return f"words-{secrets.token_hex(4)}"


def s3_client(endpoint: str) -> Any:
    return boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="any", aws_secret_access_key="any",
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 2}),
    )  # fmt: skip


def get(url: str, **headers: str) -> httpx.Response:
    return httpx.get(url, headers=headers, trust_env=False, timeout=60.0)


def test_clients_read_what_was_uploaded(endpoint: str, put: Put, tmp_path: Path) -> None:
    """If this fails, a program that reads from S3 gets other bytes than were uploaded."""
    source, name, s3 = make_source(tmp_path / "source", seed=1), new_name(), s3_client(endpoint)
    (source / "link.bin").symlink_to("sub/other.bin")
    (source / "empty").touch()
    (source / "a b+ü%2F.bin").write_bytes(b"odd")
    put(name, source)
    files = {str(path.relative_to(source)): path.read_bytes() for path in source.rglob("*") if path.is_file()}

    by_boto3 = {key: s3.get_object(Bucket=name, Key=key)["Body"].read() for key in files}
    s3.download_file(name, "data.bin", str(tmp_path / "copy"))
    by_s3fs = s3fs.S3FileSystem(
        key="any", secret="any", endpoint_url=endpoint, config_kwargs={"s3": {"addressing_style": "path"}}
    )
    by_arrow = fs.S3FileSystem(
        endpoint_override=endpoint, region="us-east-1", access_key="any", secret_key="any", scheme="http"
    )

    assert files == by_boto3
    assert files["data.bin"] == (tmp_path / "copy").read_bytes()
    assert files == {path.removeprefix(f"{name}/"): by_s3fs.cat_file(path) for path in by_s3fs.find(name)}
    assert files["sub/other.bin"] == by_arrow.open_input_file(f"{name}/sub/other.bin").read()
    selector = fs.FileSelector(name, recursive=True)
    found = {info.path.removeprefix(f"{name}/"): info.size for info in by_arrow.get_file_info(selector) if info.is_file}
    assert {path: len(data) for path, data in files.items()} == found


def test_lists_come_in_pages_and_by_directory(endpoint: str, put: Put, tmp_path: Path) -> None:
    """If this fails, a copy of many objects is a copy of some of them, without any error."""
    name, s3 = new_name(), s3_client(endpoint)
    for directory in ("many", "few"):
        (tmp_path / "source" / directory).mkdir(parents=True)
    for number in range(MANY):
        (tmp_path / "source" / "many" / f"{number:05}").write_text(str(number))
    (tmp_path / "source" / "few" / "one").write_text("1")
    put(name, tmp_path / "source")

    for kind in ("list_objects_v2", "list_objects"):
        pages = list(s3.get_paginator(kind).paginate(Bucket=name))
        assert 2 == len(pages)
        keys = [entry["Key"] for page in pages for entry in page["Contents"]]
        assert ["few/one", *(f"many/{number:05}" for number in range(MANY))] == keys
        top = s3.get_paginator(kind).paginate(Bucket=name, Delimiter="/", PaginationConfig={"PageSize": 1})
        assert ["few/", "many/"] == [each["Prefix"] for page in top for each in page.get("CommonPrefixes", [])]
    assert ["few/one"] == [one["Key"] for one in s3.list_objects_v2(Bucket=name, Prefix="few/")["Contents"]]


def test_names_that_no_bucket_may_have_are_mapped(endpoint: str, put: Put, tmp_path: Path) -> None:
    """Clients that check names would not open such a bundle at all."""
    name, s3 = f"My_{new_name()}", s3_client(endpoint)
    put(name, make_source(tmp_path / "source", seed=2))
    mapped = "x--my-0" + name.removeprefix("My_").replace("-", "-1")

    assert 200_000 == s3.head_object(Bucket=mapped, Key="data.bin")["ContentLength"]
    assert 200_000 == s3.head_object(Bucket=name, Key="data.bin")["ContentLength"]
    assert mapped in {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}


def test_heads_ranges_and_conditions_are_those_of_s3(endpoint: str, put: Put, tmp_path: Path) -> None:
    """If this fails, clients cannot read in parts, or take an old object for a new one."""
    source, name, s3 = make_source(tmp_path / "source", seed=3), new_name(), s3_client(endpoint)
    put(name, source)
    data = (source / "data.bin").read_bytes()
    head = s3.head_object(Bucket=name, Key="data.bin")
    part = s3.get_object(Bucket=name, Key="data.bin", Range="bytes=100-199")
    end = s3.get_object(Bucket=name, Key="data.bin", Range="bytes=-50")
    same = s3.get_object(Bucket=name, Key="data.bin", IfMatch=head["ETag"])["Body"].read()
    listed = s3.list_objects_v2(Bucket=name)["Contents"][0]

    assert data[100:200] == part["Body"].read()
    assert "bytes 100-199/200000" == part["ContentRange"]
    assert data[-50:] == end["Body"].read()
    assert data == same
    assert (head["ETag"], head["LastModified"]) == (listed["ETag"], listed["LastModified"])
    assert {"us-east-1"} == {
        s3.head_bucket(Bucket=name)["BucketRegion"],
        s3.get_bucket_location(Bucket=name)["LocationConstraint"] or "us-east-1",
    }
    for error, given in (
        ("InvalidRange", {"Range": "bytes=200000-"}),
        ("PreconditionFailed", {"IfMatch": '"other"'}),
        ("304", {"IfNoneMatch": head["ETag"]}),
    ):
        with pytest.raises(ClientError, match=error):
            s3.get_object(Bucket=name, Key="data.bin", **given)


def test_errors_are_those_of_s3(endpoint: str, put: Put, tmp_path: Path) -> None:
    """If this fails, a client takes a wrong name for an outage, or fails at parsing the answer."""
    name, s3 = new_name(), s3_client(endpoint)
    put(name, make_source(tmp_path / "source", seed=4))

    calls: list[tuple[str, Callable[[], object]]] = [
        ("NoSuchBucket", lambda: s3.list_objects_v2(Bucket=f"no-{name}")),
        ("NoSuchBucket", lambda: s3.get_object(Bucket=f"no-{name}", Key="data.bin")),
        ("NoSuchKey", lambda: s3.get_object(Bucket=name, Key="none.bin")),
        ("NoSuchKey", lambda: s3.get_object(Bucket=name, Key="sub")),
        ("NoSuchKey", lambda: s3.get_object(Bucket=name, Key="sub/")),
        ("404", lambda: s3.head_object(Bucket=name, Key="none.bin")),
        ("AccessDenied.*torrentdist upload", lambda: s3.put_object(Bucket=name, Key="new.bin", Body=b"1")),
        ("AccessDenied", lambda: s3.delete_object(Bucket=name, Key="data.bin")),
        ("AccessDenied", lambda: s3.delete_objects(Bucket=name, Delete={"Objects": [{"Key": "data.bin"}]})),
        ("AccessDenied", lambda: s3.create_bucket(Bucket=f"no-{name}")),
        ("AccessDenied", lambda: s3.create_multipart_upload(Bucket=name, Key="new.bin")),
        ("InvalidArgument", lambda: s3.get_bucket_acl(Bucket=name)),
        ("InvalidArgument", lambda: s3.get_object_tagging(Bucket=name, Key="data.bin")),
        ("InvalidArgument", lambda: s3.list_objects_v2(Bucket=name, ContinuationToken="?")),
    ]
    for error, call in calls:
        with pytest.raises(ClientError, match=error):
            call()


@pytest.mark.parametrize("key", ["../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd", "sub/../../../x"])
def test_no_key_leaves_the_bundle(endpoint: str, put: Put, tmp_path: Path, key: str) -> None:
    """A name from outside would read a file of the host."""
    name = new_name()
    put(name, make_source(tmp_path / "source", seed=5))

    answer = get(f"{endpoint}/{name}/{key}")

    assert 404 == answer.status_code
    assert "passwd:" not in answer.text


def test_an_object_streams_while_its_bundle_arrives(tmp_path: Path) -> None:
    """If this fails, a reader of one small object waits for gigabytes."""
    with running_cluster({"swarm": {"upload_limit": LIMIT}}, work=tmp_path / "slow", masters=1, supervisors=1) as slow:
        source = tmp_path / "source"
        source.mkdir()
        (source / "weights.bin").write_bytes(os.urandom(8 * LIMIT))
        (source / "config.json").write_text("{}")
        digest = slow.upload(source, "slow", replicas=1)["digest"]
        s3 = s3_client(f"{slow.url('supervisor-1')}/s3")
        whole = threading.Thread(target=s3.download_file, args=("slow", "weights.bin", str(tmp_path / "copy")))
        whole.start()

        small = s3.get_object(Bucket="slow", Key="config.json")["Body"].read()

        assert b"{}" == small
        assert not slow.published("supervisor-1", digest)
        whole.join(patient(120.0))
        until(lambda: slow.published("supervisor-1", digest), "published")
        assert (source / "weights.bin").read_bytes() == (tmp_path / "copy").read_bytes()


def test_the_session_of_the_page_works(endpoint: str, put: Put, tmp_path: Path) -> None:
    """If this fails, a reader who copies an example of the page gets something else."""
    source = tmp_path / "words"
    (source / "more").mkdir(parents=True)
    (source / "counts.csv").write_text("word,count\none,1\n")
    for name in ("a", "b"):
        (source / "more" / f"{name}.csv").write_text(f"{name}\n1\n")
    put("words-2", source)
    page = "\n".join(line for line in PAGE.read_text().splitlines() if not line.startswith("```"))
    (tmp_path / "page.txt").write_text(f">>> gateway = {endpoint.removesuffix('/s3')!r}\n\n{page}")

    run = subprocess.run(
        [sys.executable, "-m", "doctest", "page.txt"],
        env={**os.environ, "NO_PROXY": "127.0.0.1"}, cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip

    assert (0, "") == (run.returncode, run.stdout), run.stderr
