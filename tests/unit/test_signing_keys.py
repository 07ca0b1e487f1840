"""Key files, the configuration of [trust], and what the doctor says about it."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from torrentdist.client.trust_diagnosis import judge_trust
from torrentdist.model.access.envelope import parse_public_key_text
from torrentdist.model.configuration.config import TrustConfig, TrustRule
from torrentdist.model.configuration.settings import combine, environ_layer, toml_layer
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest
from torrentdist.model.wire.doctor_views import Verdict
from torrentdist.security.signing.signatures import BundleStatement, check_bundle
from torrentdist.security.signing.signing_keys import generate_key, read_signer

PROD = TrustConfig(cluster="prod")
A_KEY = "ed25519:" + "A" * 43 + "="


def test_a_key_is_the_users_alone_and_is_never_overwritten(tmp_path: Path) -> None:
    """Others could sign as this user, or a second `key generate` would destroy the key."""
    made = generate_key(tmp_path / "key")
    before = (tmp_path / "key").read_bytes()
    errors = []
    (tmp_path / "other.pub").write_text("mine")
    (tmp_path / "linked.pub").symlink_to("nowhere")
    for name in ("other", "linked"):
        with pytest.raises(TorrentdistError) as caught:
            generate_key(tmp_path / name)
        errors.append((caught.value.code, caught.value.fields["path"]))
    (tmp_path / "key.pub").rename(tmp_path / "kept.pub")
    for name in ("key", "nowhere/key"):
        with pytest.raises(TorrentdistError) as caught:
            generate_key(tmp_path / name)
        errors.append((caught.value.code, caught.value.fields["path"]))

    signer = read_signer(tmp_path / "key", PROD)
    statement = BundleStatement(cluster="prod", id=BundleId("etl"), digest=Digest("0" * 64))

    assert (signer.public.id,) == check_bundle(
        [signer.bundle(statement.id, statement.digest)], statement, [signer.public]
    )
    assert 0o600 == stat.S_IMODE((tmp_path / "key").stat().st_mode)
    assert [("key_exists", str(tmp_path / path)) for path in ("other.pub", "linked.pub", "key")] == errors[:3]
    assert errors[3][0] != "key_exists", "there is no such directory"
    assert before == (tmp_path / "key").read_bytes()
    assert not (tmp_path / "other").exists()
    assert made.id == parse_public_key_text((tmp_path / "kept.pub").read_text()).id == signer.public.id


def test_a_key_that_cannot_be_used_says_why(tmp_path: Path) -> None:
    """A key that others have read would be used, or a wrong file would end in a traceback."""
    made = generate_key(tmp_path / "open")
    (tmp_path / "open").chmod(0o640)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(pem, pkcs8, serialization.NoEncryption())
    locked = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        pem, pkcs8, serialization.BestAvailableEncryption(b"x")
    )
    for name, data in (("ecdsa", other), ("encrypted", locked), ("junk", b"\xff")):
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_bytes(data)
    codes = {}
    (tmp_path / "open.pub").chmod(0o600)
    for name in ("open", "ecdsa", "encrypted", "junk", "none", "open.pub"):
        with pytest.raises(TorrentdistError) as caught:
            read_signer(tmp_path / name, PROD)
        codes[name] = caught.value.code
    with pytest.raises(TorrentdistError) as nameless:
        read_signer(Path(made.key_file), TrustConfig())

    assert "secret_invalid" == codes.pop("open")
    assert {"key_invalid"} == set(codes.values())
    assert "signing_cluster_missing" == nameless.value.code


def test_trust_is_read_from_a_file_and_from_a_variable() -> None:
    """A host would check nothing, and say nothing."""
    table = {"etl-*": {"mode": "warn", "keys": [A_KEY]}}
    file = combine([toml_layer({"trust": {"cluster": "prod", "bundles": table}}, "file")]).config.trust
    text = msgspec.json.encode(table).decode()
    variables = combine([environ_layer({"TORRENTDIST_TRUST_CLUSTER": "prod", "TORRENTDIST_TRUST_BUNDLES": text})])

    assert TrustConfig(cluster="prod", bundles={"etl-*": TrustRule(mode="warn", keys=[A_KEY])}) == file
    assert file == variables.config.trust


@pytest.mark.parametrize(
    ("trust", "said"),
    [
        (
            {"cluster": "p", "bundles": {"a": {"keys": ["ed25519:AAAA"]}}},
            "trust.bundles.a: 'ed25519:AAAA' is no public key",
        ),
        ({"cluster": "p", "bundles": {"a": {"keys": ["-----BEGIN"]}}}, "a key begins with ed25519:"),
        ({"cluster": "p", "bundles": {"a": {"mode": "on"}}}, "mode must be one of off, warn, enforce, not 'on'"),
        ({"cluster": "p", "bundles": {"a/b": {}}}, "'a/b' is no pattern of bundle ids"),
        ({"cluster": "p", "bundles": {"a": {"key": []}}}, "unknown field `key`"),
        ({"bundles": {"a": {}}}, "trust.bundles needs trust.cluster"),
        ({"cluster": "a b"}, "trust.cluster must be a name"),
    ],
)
def test_a_wrong_table_is_refused_with_its_place(trust: dict[str, object], said: str) -> None:
    """A key with a typing error would open a host, or shut everybody out without a word."""
    with pytest.raises(TorrentdistError) as caught:
        combine([toml_layer({"trust": trust}, "torrentdist.toml")])

    assert caught.value.message.startswith("torrentdist.toml: ")
    assert said in caught.value.message


def test_the_doctor_names_the_trust_in_force_and_its_gaps() -> None:
    """An operator would believe that a host checks what it does not."""
    enforced = TrustRule(mode="enforce", keys=[A_KEY])
    gap = TrustConfig(cluster="p", bundles={"etl-*": enforced, "*": TrustRule(mode="off")})
    nobody = TrustConfig(cluster="p", bundles={"etl-*": TrustRule()})

    assert ["off: signatures are not looked at on this host"] == [f.detail for f in judge_trust(TrustConfig())]
    assert [Verdict.OK] * 2 == [f.verdict for f in judge_trust(TrustConfig(cluster="p", bundles={"etl-*": enforced}))]
    assert f"enforce: 1 key ({parse_public_key_text(A_KEY).id})" in [f.detail for f in judge_trust(gap)]
    assert "other ids are not enforced (off)" in [f.detail for f in judge_trust(gap) if f.verdict is Verdict.WARN]
    assert ["enforce: 0 keys, so these bundles are never used"] == [
        f.detail for f in judge_trust(nobody) if f.verdict is Verdict.WARN
    ]
