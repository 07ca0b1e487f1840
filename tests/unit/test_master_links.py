"""A daemon's requests to the masters: their order, and what it does with a host to which it is
redirected."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import msgspec
import pytest
from scripted_http import ScriptedHttp

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.distributor.protocol import Holder
from torrentdist.host.master_links import DatedMetafile, MasterLinks
from torrentdist.http.access import with_token
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, MasterId
from torrentdist.model.records import BundleState
from torrentdist.model.rendezvous import rendezvous
from torrentdist.model.wire.bundle_messages import BundleView
from torrentdist.model.wire.cluster_messages import BundleCounts, ClusterView, MasterView

MASTERS = ["http://m1:7", "http://m2:7", "http://m3:7"]


def metafile_of(directory: Path) -> Metafile:
    directory.mkdir()
    (directory / "file").write_text(directory.name)
    return make_metafile(directory)


def test_each_host_asks_the_masters_in_its_own_order() -> None:
    """One master would answer a thousand hosts, and the others none."""
    first = [rendezvous(MASTERS, f"s{number}")[0] for number in range(300)]

    assert all(first.count(master) > 60 for master in MASTERS)
    assert rendezvous(MASTERS, "s1") == rendezvous(MASTERS[::-1], "s1")


@pytest.mark.parametrize("at_host", ["has it", "is dead", "has it no more", "lies"])
def test_a_metafile_comes_from_the_host_that_a_master_names_or_from_the_master(tmp_path: Path, at_host: str) -> None:
    """A dead or malicious host would keep others from a bundle that masters have."""
    right, wrong = metafile_of(tmp_path / "right"), metafile_of(tmp_path / "wrong")
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        assert (request.url.host != "s1") == ("authorization" in request.headers)  # F4: no token to a host
        if request.url.host != "s1":
            if "for" in request.url.params:
                location = f"http://s1:8/v1/metafiles/{right.digest}"
                return httpx.Response(307, headers={"location": location, "x-digest": right.digest})
            return httpx.Response(200, content=right.raw, headers={"x-digest": right.digest})
        match at_host:
            case "has it":
                return httpx.Response(200, content=right.raw)
            case "is dead":
                raise httpx.ConnectError("refused", request=request)
            case "has it no more":
                return httpx.Response(404)
        return httpx.Response(200, content=wrong.raw)

    async def fetch() -> Metafile:
        async with ScriptedHttp(answer, with_token("x", in_the_clear=True)) as http:
            return await MasterLinks(http, lambda: MASTERS[:1], "s2").metafile(BundleId("b"))

    got = asyncio.run(fetch())

    assert right.digest == got.digest
    assert (["m1", "s1"] if at_host == "has it" else ["m1", "s1", "m1"]) == asked


@pytest.mark.parametrize("damage", ["cut", "another's"])
@pytest.mark.parametrize("by", ["bundle", "digest"])
def test_after_a_damaged_metafile_the_next_master_is_asked(tmp_path: Path, damage: str, by: str) -> None:
    """One bad disk among the masters would keep a bundle from all hosts that ask its master
    first."""
    right, wrong = metafile_of(tmp_path / "right"), metafile_of(tmp_path / "wrong")
    first = rendezvous(MASTERS, "s1")[0]
    damaged = right.raw[:-10] if damage == "cut" else wrong.raw

    def answer(request: httpx.Request) -> httpx.Response:
        content = damaged if request.url.host in first else right.raw
        return httpx.Response(200, content=content, headers={"x-digest": right.digest})

    async def fetch() -> Metafile:
        async with ScriptedHttp(answer) as http:
            links = MasterLinks(http, lambda: MASTERS, "s1")
            return await (links.metafile(BundleId("b")) if by == "bundle" else links.metafile_of(right.digest))

    assert right.digest == asyncio.run(fetch()).digest


@pytest.mark.parametrize("answer", [b"", b"{}", b"[", b"\xff", b"[" * 5000, b'{"id":5}'])
def test_after_a_rogue_answer_about_holders_the_next_master_is_asked(answer: bytes) -> None:
    """One rogue master would end a host's fetch with a bug instead of an error."""
    view = BundleView(
        id=BundleId("b"), digest=Digest("ab" * 32), size=1, files=1, state=BundleState.AVAILABLE, created_at=0.0,
        replicas=1, min_replicas=1, holders=[MasterId("m1")], pinned=False,
    )  # fmt: skip
    master = MasterView(id=MasterId("m1"), host="h", port=1, url="u", uptime_secs=1.0, is_leader=True, version="0")
    counts = BundleCounts(total=1, available=1, uploading=0, lost=0, under_replicated=0)
    cluster = ClusterView(leader=None, epoch=1, masters=[master], supervisors=[], jobs=[], bundles=counts)
    first = rendezvous(MASTERS, "s1")[0]

    def respond(request: httpx.Request, alone: bool) -> httpx.Response:
        if alone or request.url.host in first:
            return httpx.Response(200, content=answer)
        return httpx.Response(200, content=msgspec.json.encode(cluster if "cluster" in request.url.path else view))

    async def holders(alone: bool) -> list[Holder]:
        async with ScriptedHttp(lambda request: respond(request, alone)) as http:
            return await MasterLinks(http, lambda: MASTERS, "s1").holders(BundleId("b"))

    assert [Holder(MasterId("m1"), "u")] == asyncio.run(holders(alone=False))
    with pytest.raises(TorrentdistError, match="not a master's answer"):
        asyncio.run(holders(alone=True))


@pytest.mark.parametrize(("headers", "zxid"), [({"x-zxid": "7"}, 7), ({}, 0)])
def test_a_metafile_says_how_new_the_records_of_its_master_were(
    tmp_path: Path, headers: dict[str, str], zxid: int
) -> None:
    """A host would drop a bundle that it was just told to fetch, because older news call it
    removed."""
    meta = metafile_of(tmp_path / "bundle")

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=meta.raw, headers={"x-digest": meta.digest, **headers})

    async def fetch() -> DatedMetafile:
        async with ScriptedHttp(answer) as http:
            return await MasterLinks(http, lambda: MASTERS[:1], "s1").dated_metafile(BundleId("b"))

    assert zxid == asyncio.run(fetch()).zxid
