"""Published failures of comparable systems that could be ours, where no other test shows them.

Further ones are named where their tests are: search tests/ for Dragonfly, Kraken, Ray and Storm.
"""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from cluster_clients import trusting
from cluster_fixtures import Cluster, running_cluster
from engines_in_process import LARGE, address, engines, published, run, some
from records_of import snapshot
from zookeeper_fixtures import eventually

from torrentdist.bundle import bencode
from torrentdist.bundle.content_check import verify_content
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.host.http.authentication import authenticate
from torrentdist.master.access import host_operations
from torrentdist.master.changes.predicted_records import predicted
from torrentdist.master.swarm.swarm_api import MEMBERS_ONLY
from torrentdist.model.access.host_messages import InvitationBody
from torrentdist.model.access.token_messages import TokenRecord
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import JobId, digest
from torrentdist.security.authority.authority_files import init_authority
from torrentdist.security.authority.certificates import facts_of, new_key
from torrentdist.security.authority.invitation import parse_invitation
from torrentdist.security.authority.pem_texts import parse_certificate, public_key_pem
from torrentdist.security.certificate_identity import CertificateIdentity, CertificateRole
from torrentdist.security.console_session import SHARED, new_session, principal_of_session, session_key
from torrentdist.security.job_token import job_of, token_of_job
from torrentdist.security.master_proof import proof, proves
from torrentdist.security.passes import admits, new_pass
from torrentdist.security.tokens import hash_of, principal_of_token, token_text
from torrentdist.swarm.directory.directory import SwarmDirectory
from torrentdist.swarm.directory.tracker import Tracker, announce_key

NOW = 1_000_000.0
KEY = b"a key of this cluster"
SECRET = "x" * 40
DIGEST = digest("ab" * 32)
JOB = JobId("j1")


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(work=tmp_path_factory.mktemp("mutual"), masters=1, supervisors=1, tls=True) as cluster:
        cluster.http.close()
        cluster.http = httpx.Client(
            trust_env=False, timeout=60.0, headers=cluster.dev.headers(), verify=trusting(cluster)
        )
        yield cluster


@pytest.mark.case("F6")
def test_a_certificate_names_what_its_invitation_says_whatever_is_asked_for(mutual: Cluster) -> None:
    """A host that joins could be any other one: Dragonfly's manager signed certificates for
    whatever address a peer asked for."""
    text = mutual.run("host", "invite", "h9", "--role", "supervisor", "--address", "192.0.2.9").ok()["invitation"]
    asked = {
        "secret": parse_invitation(text, "").secret,
        "public_key": public_key_pem(new_key().public_key()).decode(),
    }
    path = f"{mutual.url('master-1')}/v1/invitations/{{}}/redeem"
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
    (supervisor,) = mutual.get("master-1", "/v1/cluster")["supervisors"]
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
    asked = f"{mutual.url('master-1')}/v1/bundles/b1/metafile?tracker=true"
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
    url = mutual.url("master-1")

    def told(name: str) -> str:
        asked = {"name": name, "nonce": "n" * 16, "url": url}
        return str(mutual.http.get(f"{url}/v1/proof", params=asked, headers={"Authorization": ""}).text)

    answers = [told(name) for name in ("ann", "eve", "bob")]

    assert 3 == len({*answers, told("eve")})


@pytest.mark.case("F6")
def test_no_key_has_a_default(tmp_path: Path) -> None:
    """A stranger could sign with a key that is in the source: Dragonfly's manager signed its
    sessions with a constant."""
    for name in ("one", "two"):
        init_authority(tmp_path / name, "prod", NOW)
    forged = [new_session(key, SHARED, "", NOW) for key in (b"", bytes(32), session_key(b"", b""))]
    key = session_key(b"", b"")

    assert [None] * 3 == [principal_of_session(key, session, lambda _: None, NOW) for session in forged]
    assert job_of(b"", token_of_job(b"", JOB)) is None
    assert not admits("", new_pass("", "/v1/", NOW, 900.0), "/v1/x", NOW)
    assert b"failure reason" in tracked("", announce_key("", DIGEST))
    assert (tmp_path / "one" / "ca.key").read_bytes() != (tmp_path / "two" / "ca.key").read_bytes()


def test_the_configuration_has_no_secret_of_its_own() -> None:
    """Every cluster whose operator sets nothing would have the same password."""
    secret = re.compile("token|key|secret|password|auth")

    def texts(section: dict[str, Any], above: str = "") -> Iterator[tuple[str, object]]:
        for name, value in section.items():
            if isinstance(value, dict):
                yield from texts(value, f"{above}{name}.")
            elif isinstance(value, str) and secret.search(name):
                yield above + name, value

    found = dict(texts(msgspec.to_builtins(Config())))

    assert {""} == set(found.values())
    assert {"api.token_file", "tls.key_file", "zookeeper.auth_file"} <= found.keys()


def with_the_same_crc(data: bytes, at: int) -> bytes:
    """Changes 5 bytes so that the CRC-32 stays: a multiple of its polynomial, which has 33 bits,
    lowest bit of each byte first, makes no difference."""
    bits = [int(bit) for bit in f"{0x104C11DB7:b}"]
    pattern = bytes(sum(bit << place for place, bit in enumerate(bits[start : start + 8])) for start in range(0, 33, 8))
    changed = bytes(a ^ b for a, b in zip(data[at : at + 5], pattern, strict=True))
    return data[:at] + changed + data[at + 5 :]


def test_bytes_with_the_right_crc_are_found_out(tmp_path: Path) -> None:
    """A peer could hand out another program than was published: Kraken checks pieces by CRC-32
    alone, which anybody can keep."""
    meta = published(tmp_path / "bad", LARGE)
    good = LARGE["large.bin"]
    forged = good
    for at in range(1000, len(good), 64 * 1024):
        forged = with_the_same_crc(forged, at)
    file = tmp_path / "bad" / "content" / "large.bin"
    file.chmod(0o644)
    file.write_bytes(forged)
    file.chmod(0o444)

    async def scenario() -> None:
        async with engines(*some(2)) as (bad, receiver):
            bad.seed(meta, tmp_path / "bad")
            transfer = receiver.fetch(meta, tmp_path / "dest", [address(bad)])
            await eventually(lambda: transfer.view().hash_failures > 0)

    run(scenario())

    assert zlib.crc32(good) == zlib.crc32(forged)
    assert ["large.bin"] == [damage.path for damage in verify_content(meta, tmp_path / "bad" / "content")]


def tracked(secret: str, key: str) -> bytes:
    """The answer of a tracker that knows one digest."""
    tracker = Tracker(SwarmDirectory(), secret=secret, digests=lambda _: [DIGEST])
    query = b"info_hash=%s&peer_id=%s&port=7000&left=0" % (b"%ab" * 20, b"p" * 20)
    return tracker.answer(query, key=key, source_host="192.0.2.1", now=1.0)


def inviting() -> ClusterSnapshot:
    body = InvitationBody(id="h1", role="supervisor", addresses=["192.0.2.1"], ttl_secs=60.0, hash=hash_of(SECRET))
    record = host_operations.new_invitation(body, "ann", NOW)
    return predicted(snapshot(), host_operations.invitation_ops(snapshot(), record, NOW))


def invited(secret: str) -> object:
    try:
        return host_operations.invited(inviting(), "h1", secret, "key", NOW)
    except TorrentdistError:
        return None


ANN = TokenRecord(name="ann", role="reader", hash=hash_of(SECRET), created_at=NOW)


@pytest.mark.case("F5")
@pytest.mark.parametrize(
    ("right", "accepts"),
    [
        pytest.param(SECRET, lambda text: authenticate(f"Bearer {text}", SECRET), id="the shared token"),
        pytest.param(
            token_text("ann", SECRET), lambda text: principal_of_token(text, lambda _: ANN, NOW), id="a named token"
        ),
        pytest.param(token_of_job(KEY, JOB), lambda text: job_of(KEY, text), id="a job's token"),
        pytest.param(
            new_session(KEY, "ann", ANN.hash, NOW),
            lambda text: principal_of_session(KEY, text, lambda _: ANN, NOW),
            id="a session",
        ),
        pytest.param(
            new_pass(SECRET, "", NOW, 900.0).rstrip("."),
            lambda text: admits(SECRET, f"{text}.", "/v1/x", NOW) or None,
            id="a pass",
        ),
        pytest.param(
            proof(SECRET, "nonce", "url"), lambda text: proves(text, SECRET, "nonce", "url") or None, id="a proof"
        ),
        pytest.param(SECRET, invited, id="an invitation"),
        pytest.param(
            announce_key(SECRET, DIGEST),
            lambda text: None if b"failure reason" in tracked(SECRET, text) else text,
            id="a tracker's key",
        ),
    ],
)
def test_a_secret_is_compared_in_constant_time(right: str, accepts: Callable[[str], object]) -> None:
    """A stranger could find a secret character by character, by the time of each refusal, as with
    the passwords of Dragonfly's proxy."""
    wrong = right[:-1] + ("0" if right[-1] != "0" else "1")
    called: list[str] = []

    def note(_: object, event: str, function: Any) -> None:
        if event == "c_call":
            called.append(function.__name__)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        refused = accepts(wrong)
    finally:
        sys.setprofile(before)

    assert (True, None) == (accepts(right) is not None, refused)
    assert [name for name in called if name.endswith("compare_digest")]
