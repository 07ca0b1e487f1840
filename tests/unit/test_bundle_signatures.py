"""A host's and a client's check of signatures, with masters that lie or are away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from scripted_masters import BUNDLE, Answer, Heard, Master, client, cluster

from torrentdist.bundle.metafile import Metafile
from torrentdist.bundle.metafile_maker import make_metafile
from torrentdist.client.bundles.destination import Memo, open_part
from torrentdist.client.bundles.download import DownloadWanted, download
from torrentdist.host.master_links import MasterLinks, http_client
from torrentdist.http.access import anonymously
from torrentdist.model.access.envelope import Envelope, public_key_text
from torrentdist.model.configuration.config import ClientConfig, Config, TrustConfig, TrustRule
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.security.signing.signatures import BundleStatement, sign
from torrentdist.supervisor.bundles.bundle_signatures import BundleSignatures

pytestmark = [pytest.mark.anyio, pytest.mark.case("F12")]
KEY, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
TRUST = TrustConfig(
    cluster="prod", bundles={"*": TrustRule(keys=[public_key_text(KEY.public_key().public_bytes_raw())])}
)
ETL, DIGEST = BundleId("etl-1"), Digest("ab" * 32)


def signed(digest: Digest = DIGEST, key: Ed25519PrivateKey = KEY) -> Envelope:
    return sign(BundleStatement(cluster="prod", id=ETL, digest=digest), key)


def telling(*envelopes: Envelope) -> Master:
    """A master that answers with these signatures."""

    def script(_: Heard) -> Answer:
        return 200, {**BUNDLE, "signatures": msgspec.to_builtins(list(envelopes))}

    return Master(script)


async def code_of(signatures: BundleSignatures, digest: Digest = DIGEST) -> str:
    try:
        await signatures.check(ETL, digest)
    except TorrentdistError as error:
        return error.code
    return "ok"


async def judged(folder: Path, masters: Sequence[Master], digest: Digest = DIGEST) -> str:
    """What a supervisor that has just started says of the bundle."""
    async with http_client(anonymously) as http:
        links = MasterLinks(http, lambda: [master.url for master in masters], "s1")
        return await code_of(BundleSignatures(TRUST, folder, links.signatures), digest)


async def test_a_master_that_lies_is_passed_over(tmp_path: Path) -> None:
    """One rogue master could keep every host from a signed bundle."""
    wrong = [telling(), telling(signed(key=OTHER)), telling(signed(Digest("cd" * 32)))]
    right = telling(signed(key=OTHER), signed())
    async with cluster(*wrong, right):
        among_others = await judged(tmp_path / "a", [*wrong, right])
        alone = [await judged(tmp_path / "b", [master]) for master in wrong]

    assert "ok" == among_others
    assert ["unsigned_bundle", "unknown_key", "bad_signature"] == alone


async def test_a_verified_signature_is_kept_and_a_damaged_one_asked_for_again(tmp_path: Path) -> None:
    """A host could use nothing while its masters are away, or would believe its disk blindly."""
    master = telling(signed())
    async with cluster(master):
        first = await judged(tmp_path, [master])
    kept = tmp_path / f"{ETL}.json"
    away = await judged(tmp_path, [master]), await judged(tmp_path, [master], Digest("cd" * 32))
    kept.write_bytes(msgspec.json.encode([signed(key=OTHER)]))
    forged = await judged(tmp_path, [master])
    async with cluster(again := telling(signed())):
        repaired = await judged(tmp_path, [again])
    signatures = BundleSignatures(TRUST, tmp_path, MasterLinks(http_client(anonymously), list, "s1").signatures)
    before = await code_of(signatures)
    signatures.forget([ETL])

    assert ("ok", ("ok", "unreachable"), "unreachable", "ok", "ok") == (first, away, forged, repaired, before)
    assert "unreachable" == await code_of(signatures)


@pytest.fixture
def kept(tmp_path: Path) -> Metafile:
    """The metafile of an unfinished download to `copy`."""
    (tmp_path / "source").write_bytes(b"content")
    meta = make_metafile(tmp_path / "source")
    with open_part(tmp_path / "copy") as part:
        part.begin(ETL, meta)
    return meta


@pytest.mark.parametrize("is_signed", [False, True])
async def test_an_unfinished_download_goes_on_without_masters_if_it_was_verified(
    tmp_path: Path, kept: Metafile, is_signed: bool
) -> None:
    """A download that is continued while masters are away would skip the check, or never end."""
    if is_signed:
        with open_part(tmp_path / "copy") as part:
            part.keep(Memo(bundle=ETL, digest=kept.digest, signatures=[signed(kept.digest)]))
    config = Config(trust=TRUST, client=ClientConfig(supervisor=""))
    async with client("http://127.0.0.1:9", deadline=0.3) as masters:
        with pytest.raises(TorrentdistError) as caught:
            await download(masters, config, ETL, tmp_path / "copy", DownloadWanted(timeout=0.5))

    assert ("timed_out" if is_signed else "unsigned_bundle") == caught.value.code


def test_another_bundle_does_not_inherit_signatures(tmp_path: Path, kept: Metafile) -> None:
    """A download under another id would count as signed."""
    with open_part(tmp_path / "copy") as part:
        part.keep(Memo(bundle=ETL, digest=kept.digest, signatures=[signed(kept.digest)]))
        part.begin(BundleId("other-1"), kept)
        memo = part.memo()

    assert memo is not None
    assert ("other-1", []) == (memo.bundle, memo.signatures)
