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

import msgspec
import pytest
from engines_in_process import LARGE, address, engines, published, run, some
from records_of import snapshot
from zookeeper_fixtures import eventually

from torrentdist.bundle.content_check import verify_content
from torrentdist.cluster.records.snapshot import ClusterSnapshot
from torrentdist.host.http.authentication import authenticate
from torrentdist.master.access import host_operations
from torrentdist.master.changes.predicted_records import predicted
from torrentdist.model.access.host_messages import InvitationBody
from torrentdist.model.access.token_messages import TokenRecord
from torrentdist.model.configuration.config import Config
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import JobId, digest
from torrentdist.security.authority.authority_files import init_authority
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
