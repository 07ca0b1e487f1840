"""The tokens of pods: real keys, and what is refused."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from base64 import urlsafe_b64encode
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tls_site import make_authority

from torrentdist.csi import pod_proofs
from torrentdist.csi.pod_proofs import PodProofs
from torrentdist.csi.volume_request import Pod, Refusal, VolumeRefused, WantedVolume
from torrentdist.model.configuration.config import KubernetesConfig
from torrentdist.model.ids import BundleId
from torrentdist.security.service_account_tokens import (
    LONGEST_TOKEN,
    ExpectedToken,
    PodIdentity,
    PodTokenRefused,
    key_id,
    parse_keys,
    verify,
)

NOW = 1_800_000_000.0
EXPECTED = ExpectedToken("torrentdist", "https://cluster")
CLAIMS: dict[str, Any] = {
    "iss": "https://cluster",
    "aud": ["torrentdist"],
    "sub": "system:serviceaccount:team-a:runner",
    "exp": NOW + 3600,
    "nbf": NOW,
    "kubernetes.io": {
        "namespace": "team-a",
        "node": {"name": "n1", "uid": "x"},
        "pod": {"name": "etl-0", "uid": "u1"},
        "serviceaccount": {"name": "runner", "uid": "y"},
    },
}


def coded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value: int) -> str:
    return coded(value.to_bytes((value.bit_length() + 7) // 8))


@cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@cache
def ec_key(name: str) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def published(*names: str) -> bytes:
    """Returns the cluster's keys, as it publishes them."""
    keys = []
    for name in names:
        public, point = rsa_key(name).public_key().public_numbers(), ec_key(name).public_key().public_numbers()
        keys.append({"kty": "RSA", "kid": f"rsa-{name}", "use": "sig", "n": number(public.n), "e": number(public.e)})
        x, y = (coded(value.to_bytes(32)) for value in (point.x, point.y))
        keys.append({"kty": "EC", "kid": f"ec-{name}", "crv": "P-256", "x": x, "y": y})
    return json.dumps({"keys": [*keys, {"kty": "oct", "k": "AA"}]}).encode()


def signed(header: dict[str, str], claims: dict[str, Any], name: str = "a") -> str:
    text = ".".join(coded(json.dumps(part).encode()) for part in (header, claims))
    if header["alg"].startswith("ES"):
        hashed = hashes.SHA384() if header["alg"] == "ES384" else hashes.SHA256()
        r, s = decode_dss_signature(ec_key(name).sign(text.encode(), ec.ECDSA(hashed)))
        signature = r.to_bytes(32) + s.to_bytes(32)
    else:
        signature = rsa_key(name).sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{text}.{coded(signature)}"


def token(name: str = "a", alg: str = "RS256", **changes: Any) -> str:
    return signed({"alg": alg, "kid": f"{'ec' if alg[0] == 'E' else 'rsa'}-{name}"}, CLAIMS | changes, name)


def refusal(text: str, now: float = NOW) -> str:
    with pytest.raises(PodTokenRefused) as refused:
        verify(text, parse_keys(published("a")), EXPECTED, now)
    return str(refused.value)


@pytest.mark.parametrize("alg", ["RS256", "ES256"])
def test_a_token_that_the_cluster_signed_names_its_pod(alg: str) -> None:
    """A pod that proves who it is would be refused."""
    keys = parse_keys(published("b", "a"))

    assert PodIdentity("team-a", "runner", "etl-0", "u1") == verify(token("a", alg), keys, EXPECTED, NOW)
    unnamed = signed({"alg": alg}, CLAIMS | {"aud": "torrentdist"})
    assert "team-a" == verify(unnamed, keys, EXPECTED, NOW).namespace


def test_what_the_cluster_did_not_sign_is_refused() -> None:
    """Anybody could name any namespace."""
    public = rsa_key("a").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    confused = ".".join(coded(json.dumps(part).encode()) for part in ({"alg": "HS256", "kid": "rsa-a"}, CLAIMS))
    mac = hmac.HMAC(public, hashes.SHA256())
    mac.update(confused.encode())
    parts, other = token().split("."), token(aud=["torrentdist", "x"]).split(".")
    forged = [
        token("b"),
        signed({"alg": "RS256", "kid": "rsa-a"}, CLAIMS, "b"),
        signed({"alg": "ES256", "kid": "rsa-a"}, CLAIMS),
        signed({"alg": "ES384", "kid": "ec-a"}, CLAIMS),
        signed({"alg": "RS999", "kid": "rsa-a"}, CLAIMS),
        signed({"alg": "PS256", "kid": "rsa-a"}, CLAIMS),
        f"{confused}.{coded(mac.finalize())}",
        f"{coded(json.dumps({'alg': 'none'}).encode())}.{parts[1]}.",
        f"{parts[0]}.{other[1]}.{parts[2]}",
        token()[:-8],
    ]

    assert {"no key of this cluster has signed it"} == {refusal(text) for text in forged}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"aud": ["vault"]}, "not for"),
        ({"iss": "https://other"}, "another cluster"),
        ({"exp": NOW}, "expired"),
        ({"nbf": NOW + 60}, "not valid yet"),
        ({"kubernetes.io": {"namespace": "team-a"}}, "not bound"),
        ({"exp": "later"}, "not bound"),
    ],
)
def test_a_token_for_something_else_is_refused(changes: dict[str, Any], words: str) -> None:
    """A token that leaked long ago, or was made for another service or cluster, would do."""
    assert words in refusal(token(**changes))


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c", "....", "é.a.b", "x" * 20_000, "e30.e30.e30"])
def test_what_is_no_token_is_refused(text: str) -> None:
    """A hostile text would end the driver's call without a reason."""
    assert refusal(text)
    assert "" == key_id(text)


def test_only_the_one_form_of_a_token_counts() -> None:
    """A token could be written in ways that its issuer never wrote, or be as long as a sender
    likes."""
    assert "it is not understood" == refusal(token() + "=")
    assert "it is no signed token" == refusal(token(more="x" * LONGEST_TOKEN))
    assert PodIdentity("team-a", "runner", "etl-0", "u1") == verify(
        token(more="x" * 10_000), parse_keys(published("a")), EXPECTED, NOW
    )


def test_keys_of_other_kinds_are_passed_over() -> None:
    """A cluster that publishes a key of another kind, too, would have all its pods refused."""
    keys = json.loads(published("a"))["keys"]
    others = [{"kty": "EC", "kid": "k1", "crv": "secp256k1", "x": "AQ", "y": "AQ"}, {"kty": "OKP", "crv": "Ed25519"}]

    assert 2 == len(parse_keys(json.dumps({"keys": [*others, *keys]}).encode()))


@pytest.mark.parametrize("text", [b"", b"[]", b'{"keys": []}', b'{"keys": [{"kty": "RSA", "n": "AQ", "e": "AQAB"}]}'])
def test_what_holds_no_key_is_no_set_of_keys(text: bytes) -> None:
    """A driver would start, and refuse every pod without a word why."""
    with pytest.raises(ValueError, match=r"no set of keys|no RSA or EC key"):
        parse_keys(text)


def volume(text: str, pod: str = "etl-0") -> WantedVolume:
    tokens = json.dumps({"torrentdist": {"token": text}})
    return WantedVolume("v", "/t", BundleId("env"), None, "", Pod("team-a", pod, "u1", "runner"), tokens)


def test_a_pod_proves_itself_and_new_keys_are_found(tmp_path: Path) -> None:
    """A pod could take the token of another one, or none would start after a rotation of keys."""
    file = tmp_path / "keys.json"
    file.write_bytes(published("b"))
    proofs = PodProofs(KubernetesConfig(keys=str(file), issuer="https://cluster"), clock=lambda: NOW)

    async def said(wanted: WantedVolume) -> Refusal | None:
        try:
            await proofs.check(wanted)
        except VolumeRefused as refused:
            return refused.why
        return None

    assert None is asyncio.run(said(volume(token("b"))))
    assert Refusal.DENIED is asyncio.run(said(volume(token("b"), pod="etl-1")))
    assert Refusal.DENIED is asyncio.run(said(volume(token("a"))))
    file.write_bytes(published("a"))
    proofs._read_at = time.monotonic() - 10.0
    assert None is asyncio.run(said(volume(token("a"))))
    assert Refusal.DENIED is asyncio.run(said(volume(token("b")))), "its key is withdrawn"


def test_without_keys_nobody_is_believed(tmp_path: Path) -> None:
    """A driver that cannot read the keys would let everybody in."""
    proofs = PodProofs(KubernetesConfig(keys=str(tmp_path / "missing")))
    with pytest.raises(VolumeRefused) as refused:
        asyncio.run(proofs.check(volume(token())))

    assert Refusal.NOT_YET is refused.value.why
    asyncio.run(PodProofs(KubernetesConfig()).check(volume("")))


def test_a_source_that_does_not_answer_holds_up_one_pod_at_most() -> None:
    """Each pod that starts while the API server hangs would wait for all pods before it, although
    the driver knows the keys."""
    asked: list[float] = []

    class Hanging(PodProofs):
        async def _read(self) -> bytes:
            asked.append(time.monotonic())
            if len(asked) > 1:
                raise TimeoutError("no answer")
            return published("a")

    proofs = Hanging(KubernetesConfig(keys="https://api", issuer="https://cluster"), clock=lambda: NOW)

    async def check() -> None:
        await proofs.check(volume(token()))
        proofs._known_at = proofs._read_at = float("-inf")  # as after a long time
        for _ in range(3):
            await proofs.check(volume(token()))

    asyncio.run(check())

    assert 2 == len(asked)


def test_the_keys_come_from_the_api_server_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver in a pod would find no keys, or believe those of whoever answers."""
    authority = make_authority(tmp_path / "ca")
    files = authority.files("api")
    monkeypatch.setattr(pod_proofs, "OWN_ACCOUNT", tmp_path)
    (tmp_path / "token").write_text("drivers-token\n")
    (tmp_path / "ca.crt").write_bytes(authority.ca.read_bytes())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    assert files.certificate is not None
    context.load_cert_chain(files.certificate, files.key)
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        body = published("a")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        writer.close()

    async def check() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/openid/v1/jwks"
        await PodProofs(KubernetesConfig(keys=url), clock=lambda: NOW).check(volume(token()))
        (tmp_path / "ca.crt").write_bytes(make_authority(tmp_path / "other").ca.read_bytes())
        with pytest.raises(VolumeRefused) as refused:
            await PodProofs(KubernetesConfig(keys=url)).check(volume(token()))
        assert Refusal.NOT_YET is refused.value.why
        server.close()
        await server.wait_closed()

    asyncio.run(check())

    assert [(True, True)] == [
        (head.startswith(b"GET /openid/v1/jwks "), b"Bearer drivers-token" in head) for head in asked
    ]
