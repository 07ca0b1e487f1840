"""Content that the cluster has already is published again by those who have it."""

import asyncio
from functools import partial
from pathlib import Path

import httpx
import msgspec
import pytest
from records_of import bundle, digest_of, snapshot
from scripted_http import ScriptedHttp

from torrentdist.bundle.files.content_proof import ContentProof
from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.bundles.chunked_upload import opened_with_proof, read_chunk
from torrentdist.client.masters.master_client import MasterClient
from torrentdist.master.replication import possession
from torrentdist.master.replication.possession import must_prove
from torrentdist.model.configuration.config import ClientConfig
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId
from torrentdist.model.records import BundleState
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.testing.sample_trees import some_bytes, write_tree

pytestmark = pytest.mark.case("I2")
AVAILABLE, UPLOADING, REMOVED, LOST = (
    BundleState.AVAILABLE,
    BundleState.UPLOADING,
    BundleState.REMOVED,
    BundleState.LOST,
)


@pytest.mark.parametrize(
    ("there", "proof"),
    [
        ({}, False),
        ({"secret-1": AVAILABLE}, True),
        ({"secret-1": REMOVED}, True),
        ({"secret-1": UPLOADING}, True),
        ({"secret-1": LOST}, True),
        ({"mine-1": UPLOADING}, False),
        ({"mine-1": AVAILABLE, "secret-1": AVAILABLE}, False),
        ({"mine-1": LOST, "secret-1": REMOVED}, False),
        ({"mine-1": UPLOADING, "secret-1": AVAILABLE}, True),
        ({"mine-1": REMOVED, "secret-1": AVAILABLE}, True),
    ],
)
def test_hidden_content_has_to_be_shown(there: dict[str, BundleState], proof: bool) -> None:
    """The holder of a metafile would read what it describes; or a team would send what it may read
    anyway."""
    found = snapshot(bundles=[bundle(name, state=state) for name, state in there.items()])
    names = [BundleId(name) for name in there]

    assert proof == must_prove(found, names, ("mine-*",))
    assert not must_prove(found, names, ("*",))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file of many pieces, one of one piece, an empty one and small ones that are packed."""
    files = {"large": some_bytes(1_000_000, 1), "one": some_bytes(20_000, 2), "empty": b""}
    write_tree(tmp_path / "source", {**files, **{f"small/{n}": some_bytes(300, n + 3) for n in range(120)}})
    return tmp_path / "source"


@pytest.mark.parametrize("step", [1_000, 16_384, 100_001, 5_000_000])
def test_all_bytes_are_a_proof(source: Path, step: int) -> None:
    """Somebody who has the content could not publish it."""
    meta = make_metafile(source)
    proof = ContentProof(meta)
    while proof.offset < meta.size:
        assert not proof.is_complete
        proof.add(read_chunk(meta, source, proof.offset, step))

    assert meta.packed.files
    assert proof.is_complete


@pytest.mark.parametrize("at", [0, 500_000, 999_999, 1_010_000, -1])
def test_a_wrong_byte_is_no_proof(source: Path, at: int) -> None:
    """Somebody who has most of the content would get the rest."""
    meta = make_metafile(source)
    data = bytearray(read_chunk(meta, source, 0, meta.size))
    data[at] ^= 1
    with pytest.raises(TorrentdistError) as caught:
        ContentProof(meta).add(bytes(data))

    assert "corrupt" == caught.value.code


def test_proofs_under_way_hold_no_more_memory_than_planned(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Senders that begin proofs with large metafiles and send no byte would fill the leader's
    memory."""
    meta = make_metafile(source)
    monkeypatch.setattr(possession, "MOST_METAFILE_BYTES", 2 * len(meta.raw))
    proofs = possession.Proofs()
    for sender in ("ann", "bob", "ann"):
        proofs.begin(sender, meta)

    with pytest.raises(TorrentdistError) as caught:
        proofs.begin("eve", meta)
    assert "not_ready" == caught.value.code


def test_one_sender_shows_a_few_contents_at_a_time(source: Path) -> None:
    """One sender would take the place of all others."""
    meta = make_metafile(source)
    contents = [msgspec.structs.replace(meta, digest=digest_of(f"{n}")) for n in range(possession.MOST_OF_ONE + 1)]
    proofs = possession.Proofs()
    for content in contents:
        proofs.begin("ann", content)

    with pytest.raises(TorrentdistError, match="whose content has to be shown"):
        asyncio.run(proofs.add("ann", contents[0].digest, 0, b"x"))
    with pytest.raises(TorrentdistError, match="do not follow"):
        asyncio.run(proofs.add("ann", contents[1].digest, 1, b"x"))


def test_a_proof_that_is_refused_costs_no_other(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a sender whose fifth content is too large begins the first one anew."""
    meta = make_metafile(source)
    contents = [msgspec.structs.replace(meta, digest=digest_of(f"{n}")) for n in range(possession.MOST_OF_ONE)]
    monkeypatch.setattr(possession, "MOST_METAFILE_BYTES", possession.MOST_OF_ONE * len(meta.raw))
    proofs = possession.Proofs()
    for content in contents:
        proofs.begin("ann", content)
    with pytest.raises(TorrentdistError, match="many uploaders"):
        proofs.begin("ann", msgspec.structs.replace(meta, raw=2 * meta.raw, digest=digest_of("large")))

    with pytest.raises(TorrentdistError, match="do not follow"):
        asyncio.run(proofs.add("ann", contents[0].digest, 1, b"x"))


class ProofTakers:
    """Leaders that ask for a proof. The next one takes over before the request with a number in
    `fails_over`, and has seen nothing of what was shown; `returns`: it has seen these bytes."""

    def __init__(self, meta: Metafile, fails_over: set[int], returns: int) -> None:
        self.meta = meta
        self.fails_over = fails_over
        self.returns = returns
        self.requests = 0
        self.seen: int | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        if self.requests in self.fails_over:
            self.seen = self.returns or None
        if self.requests > 100 or self.seen == self.meta.size:
            opened = bundle("mine-1", state=UPLOADING).record
            fields = {"replicas": 0, "holders": []} | {name: getattr(opened, name) for name in FIELDS}
            return httpx.Response(200, content=msgspec.json.encode(fields))
        if request.method == "POST":
            self.seen = self.seen or 0
            return self._refused("proof_needed", id="mine-1")
        if self.seen is None:
            return self._refused("not_found", what="an upload whose content has to be shown")
        if int(request.url.params["offset"]) != self.seen:
            return self._refused("invalid_request", {"offset": self.seen}, detail="other bytes are next")
        self.seen += len(request.content)
        return httpx.Response(200, json={"offset": self.seen})

    def _refused(self, code: str, extra: dict[str, int] | None = None, **fields: str) -> httpx.Response:
        error = TorrentdistError(code, extra=extra, **fields)
        return httpx.Response(error.http_status, json=error.to_wire())


FIELDS = ("id", "digest", "size", "files", "min_replicas", "created_at", "state", "pinned")


@pytest.mark.parametrize(
    ("fails_over", "returns", "requests"),
    [
        (set(), 0, 5),  # opens, shows three chunks, opens again
        ({3}, 0, 8),
        ({5}, 0, 9),
        ({3, 6}, 0, 11),
        ({4}, 1_000_000, 7),
    ],
)
def test_a_proof_begins_anew_with_a_new_leader(
    tmp_path: Path, fails_over: set[int], returns: int, requests: int
) -> None:
    """B8: an upload would end with `not_found` because its leader died."""
    (tmp_path / "file").write_bytes(some_bytes(9_000_000, 7))
    meta = make_metafile(tmp_path / "file")
    leaders = ProofTakers(meta, fails_over, returns)

    async def open_upload() -> BundleView:
        config = ClientConfig(masters=["http://127.0.0.1:7060"], deadline_secs=5.0)
        async with MasterClient(config, open_http=lambda access: ScriptedHttp(leaders, access)) as client:
            id = BundleId("mine-1")
            opened = partial(client.open_upload, id, meta.raw, 1)
            return await opened_with_proof(client, id, meta, tmp_path / "file", lambda offset: None, opened)

    assert UPLOADING == asyncio.run(open_upload()).state
    assert requests == leaders.requests


def test_a_leader_that_takes_bytes_and_never_goes_on_is_given_up(tmp_path: Path) -> None:
    """If this fails, an upload sends the same bytes for ever."""
    (tmp_path / "file").write_bytes(some_bytes(9_000_000, 7))
    meta, requests = make_metafile(tmp_path / "file"), []

    def stuck(request: httpx.Request) -> httpx.Response:
        requests.append(request.method)
        if request.method == "POST":
            error = TorrentdistError("proof_needed", id="mine-1")
            return httpx.Response(error.http_status, json=error.to_wire())
        if len(requests) > 100:
            raise AssertionError("it goes on for ever")
        return httpx.Response(200, json={"offset": 0})

    async def open_upload() -> BundleView:
        config = ClientConfig(masters=["http://127.0.0.1:7060"], deadline_secs=5.0)
        async with MasterClient(config, open_http=lambda access: ScriptedHttp(stuck, access)) as client:
            id = BundleId("mine-1")
            opened = partial(client.open_upload, id, meta.raw, 1)
            return await opened_with_proof(client, id, meta, tmp_path / "file", lambda offset: None, opened)

    with pytest.raises(TorrentdistError, match="no progress at 0"):
        asyncio.run(open_upload())
