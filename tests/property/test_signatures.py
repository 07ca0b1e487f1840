"""Signatures for any statement: right ones are accepted, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import assume, given
from hypothesis import strategies as st

from torrentdist.model.access.envelope import (
    MAX_BUNDLE_PAYLOAD_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_SIGNATURES,
    Envelope,
    EnvelopeSignature,
    SigningKeyText,
    check_bounds,
    parse_public_key_text,
    public_key_text,
)
from torrentdist.model.errors import TorrentdistError
from torrentdist.model.ids import BundleId, Digest, JobId
from torrentdist.model.jobs.job import JobSpec
from torrentdist.model.jobs.job_overrides import with_overrides
from torrentdist.security.signing.signatures import (
    BundleStatement,
    JobStatement,
    SignedContent,
    canonical,
    check_bundle,
    check_job,
    sign,
    to_be_signed,
    verified,
)
from torrentdist.security.signing.signed_jobs import HostRules, JobClaim, spec_to_run
from torrentdist.security.signing.trust import BundleTrust, TrustMode

pytestmark = pytest.mark.case("F12")

KEY, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
A_SIGNATURE = EnvelopeSignature(keyid="0" * 16, sig=bytes(64))


def public(key: Ed25519PrivateKey) -> SigningKeyText:
    return parse_public_key_text(public_key_text(key.public_key().public_bytes_raw()))


NAME = st.from_regex(r"[a-z][a-z0-9._-]{0,20}", fullmatch=True)
DIGEST = st.binary(min_size=32, max_size=32).map(lambda raw: Digest(raw.hex()))
BUNDLE = st.builds(BundleStatement, cluster=NAME, id=NAME.map(BundleId), digest=DIGEST)


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(TorrentdistError) as caught:
        call()
    return caught.value.code


@given(statement=BUNDLE)
def test_a_right_signature_is_accepted(statement: BundleStatement) -> None:
    """Nobody could use a bundle that was signed."""
    envelope = sign(statement, KEY)
    copy = msgspec.json.decode(msgspec.json.encode(envelope), type=Envelope)

    assert (public(KEY).id,) == check_bundle([copy], statement, [public(OTHER), public(KEY)])


@given(statement=BUNDLE, wanted=BUNDLE)
def test_a_statement_holds_for_one_bundle_of_one_cluster(statement: BundleStatement, wanted: BundleStatement) -> None:
    """A signature would hold for another content, another id, or in another cluster."""
    assume(statement != wanted)
    for field in ("cluster", "id", "digest"):
        changed = msgspec.structs.replace(statement, **{field: getattr(wanted, field)})
        if changed != statement:
            assert "bad_signature" == refused(lambda c=changed: check_bundle([sign(statement, KEY)], c, [public(KEY)]))  # type: ignore[misc]


@given(statement=BUNDLE, data=st.data())
def test_a_changed_byte_is_noticed(statement: BundleStatement, data: st.DataObject) -> None:
    """A relay could change what was signed."""
    envelope = sign(statement, KEY)
    part = data.draw(st.sampled_from(["payload", "sig", "payload_type"]))
    raw = bytearray(
        envelope.signatures[0].sig
        if part == "sig"
        else getattr(envelope, part).encode()
        if part == "payload_type"
        else envelope.payload
    )
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= 1 << data.draw(st.integers(0, 6))
    if part == "sig":
        made = msgspec.structs.replace(envelope.signatures[0], sig=bytes(raw))
        changed = msgspec.structs.replace(envelope, signatures=(made,))
    elif part == "payload":
        changed = msgspec.structs.replace(envelope, payload=bytes(raw))
    else:
        changed = msgspec.structs.replace(envelope, payload_type=raw.decode(errors="replace"))

    assert "bad_signature" == refused(lambda: check_bundle([changed], statement, [public(KEY)]))


@given(statement=BUNDLE)
def test_another_key_counts_for_nothing(statement: BundleStatement) -> None:
    """Anybody could sign, or borrow the id of a known key."""
    envelope = sign(statement, OTHER)
    borrowed = EnvelopeSignature(keyid=public(KEY).id, sig=envelope.signatures[0].sig)

    assert "unknown_key" == refused(lambda: check_bundle([envelope], statement, [public(KEY)]))
    assert "unknown_key" == refused(lambda: check_bundle([envelope], statement, []))
    assert "unsigned_bundle" == refused(lambda: check_bundle([], statement, [public(KEY)]))
    forged = msgspec.structs.replace(envelope, signatures=(borrowed,))
    assert "bad_signature" == refused(lambda: check_bundle([forged], statement, [public(KEY)]))


@pytest.mark.parametrize(
    ("changed", "detail"),
    [
        ({"payload": b" " * (MAX_PAYLOAD_BYTES + 1)}, "it is over"),
        ({"signatures": ()}, "no signature, or too many"),
        ({"signatures": (A_SIGNATURE,) * (MAX_SIGNATURES + 1)}, "no signature, or too many"),
        ({"payload_type": "x" * 101}, "no signature, or too many"),
        ({"signatures": (A_SIGNATURE, EnvelopeSignature(keyid="0" * 15, sig=bytes(64)))}, "no signature by ed25519"),
        ({"signatures": (EnvelopeSignature(keyid="0" * 16, sig=bytes(63)),)}, "no signature by ed25519"),
    ],
)
def test_an_envelope_from_outside_has_bounds(changed: dict[str, Any], detail: str) -> None:
    """One request could have a master verify signatures for minutes."""
    largest = Envelope(
        payload_type="x" * 100, payload=b" " * MAX_PAYLOAD_BYTES, signatures=(A_SIGNATURE,) * MAX_SIGNATURES
    )
    check_bounds(largest)
    with pytest.raises(TorrentdistError) as caught:
        check_bounds(msgspec.structs.replace(largest, **changed))

    assert "bad_signature" == caught.value.code
    assert detail in caught.value.fields["detail"]


@pytest.mark.parametrize("text", ["!" + "A" * 43 + "=", "A" * 43, "\u00e9" * 44])
def test_a_key_that_is_no_base64_says_so(text: str) -> None:
    """A configuration would trust another key than the one that its author has read."""
    with pytest.raises(ValueError, match="not base64"):
        parse_public_key_text(f"ed25519:{text}")


def test_the_most_telling_refusal_is_told() -> None:
    """A user whose signed bundle was changed would look for a key that is unknown."""
    wanted = BundleStatement(cluster="c", id=BundleId("b"), digest=Digest("0" * 64))
    wrong, unknown = sign(msgspec.structs.replace(wanted, cluster="d"), KEY), sign(wanted, OTHER)

    for envelopes in ([wrong, unknown], [unknown, wrong]):
        assert "bad_signature" == refused(lambda e=envelopes: check_bundle(e, wanted, [public(KEY)]))  # type: ignore[misc]


def test_what_is_signed_is_encoded_as_dsse_says() -> None:
    """Other programs could not check our signatures. The text is the example of DSSE's protocol."""
    expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"

    assert expected == to_be_signed("http://example.com/HelloWorld", b"hello world")


def test_a_statement_has_a_bound_for_who_signs_and_for_who_reads() -> None:
    """A statement could be signed that nobody reads, or a hash of gigabytes be asked for."""
    small = BundleStatement(cluster="", id=BundleId("b"), digest=Digest("0" * 64))
    room = MAX_PAYLOAD_BYTES - len(canonical(small))
    largest, larger = (msgspec.structs.replace(small, cluster="c" * length) for length in (room, room + 1))

    assert len(sign(largest, KEY).payload) == MAX_PAYLOAD_BYTES
    assert "too_large" == refused(lambda: sign(larger, KEY))
    for size, code in ((MAX_BUNDLE_PAYLOAD_BYTES, "unknown_key"), (MAX_BUNDLE_PAYLOAD_BYTES + 1, "bad_signature")):
        envelope = msgspec.structs.replace(sign(small, KEY), payload=b" " * size)
        assert code == refused(lambda e=envelope: verified(e, BundleStatement, [public(OTHER)], "x"))  # type: ignore[misc]


@given(statement=BUNDLE, noise=st.integers(0, MAX_SIGNATURES - 1))
def test_one_right_signature_among_others_is_enough(statement: BundleStatement, noise: int) -> None:
    """A second signer, or somebody's junk, would make a signed bundle unusable."""
    junk = [sign(msgspec.structs.replace(statement, cluster=f"other-{n}"), OTHER) for n in range(noise)]

    assert (public(KEY).id,) == check_bundle([*junk, sign(statement, KEY)], statement, [public(KEY)])


SPEC = st.builds(
    JobSpec,
    name=NAME,
    command=st.lists(st.text("abc./- ", min_size=1), min_size=1, max_size=3).map(tuple),
    env=st.dictionaries(st.from_regex("[A-Z]{1,5}", fullmatch=True), st.text("abc=é\n", max_size=9), max_size=3),
)


def other_than(digest: Digest) -> Digest:
    return Digest(digest.translate(str.maketrans("0123456789abcdef", "123456789abcdef0")))


CONTENT = st.builds(SignedContent, NAME.map(BundleId), DIGEST)


@st.composite
def job_statements(draw: st.DrawFn) -> JobStatement:
    needed = tuple({content.id: content for content in draw(st.lists(CONTENT, max_size=3))}.values())
    spec = msgspec.structs.replace(draw(SPEC), dependencies=tuple(content.id for content in needed))
    return JobStatement(
        cluster=draw(NAME),
        id=JobId(draw(NAME)),
        bundle=draw(CONTENT),
        dependencies=needed,
        name=None,
        workers=None,
        conf={},
        spec=spec,
    )


@given(statement=job_statements(), other=job_statements())
def test_a_job_statement_holds_for_one_job(statement: JobStatement, other: JobStatement) -> None:
    """A signed job could be run with another bundle, other dependencies or another command."""
    _, said = verified(sign(statement, KEY), JobStatement, [public(KEY)], "job")
    digests = {content.id: content.digest for content in statement.dependencies}

    assert statement == said
    assert "" == check_job(said, statement.id, statement.bundle, digests, statement.cluster)
    if other.id != statement.id:
        assert check_job(said, other.id, statement.bundle, digests, statement.cluster)
    if other.bundle != statement.bundle:
        assert check_job(said, statement.id, other.bundle, digests, statement.cluster)
    if other.cluster != statement.cluster:
        assert check_job(said, statement.id, statement.bundle, digests, other.cluster)
    for needed in digests:
        assert check_job(
            said, statement.id, statement.bundle, {**digests, needed: other_than(digests[needed])}, statement.cluster
        )


@given(job=job_statements(), bundle=BUNDLE)
def test_a_signature_of_one_kind_is_none_of_another(job: JobStatement, bundle: BundleStatement) -> None:
    """A signed bundle could be taken for a signed job."""
    assert "bad_signature" == refused(lambda: verified(sign(job, KEY), BundleStatement, [public(KEY)], "x"))
    assert "bad_signature" == refused(lambda: verified(sign(bundle, KEY), JobStatement, [public(KEY)], "x"))
    disguised = msgspec.structs.replace(bundle, domain="torrentdist/job/v1")
    assert "bad_signature" == refused(lambda: check_bundle([sign(disguised, KEY)], bundle, [public(KEY)]))


@given(
    one=st.tuples(st.text(max_size=20), st.binary(max_size=20)),
    two=st.tuples(st.text(max_size=20), st.binary(max_size=20)),
)
def test_what_is_signed_tells_type_and_payload_apart(one: tuple[str, bytes], two: tuple[str, bytes]) -> None:
    """Moving bytes between type and payload would keep the signature right."""
    assume(one != two)

    assert to_be_signed(*one) != to_be_signed(*two)


@given(statement=job_statements())
def test_the_encoding_of_a_statement_does_not_depend_on_the_order_of_tables(statement: JobStatement) -> None:
    """The same job would have several signatures, and a retry would count as another job."""
    spec = msgspec.structs.replace(statement.spec, env=dict(reversed(statement.spec.env.items())))

    assert canonical(statement) == canonical(msgspec.structs.replace(statement, spec=spec))


# what a host runs

TOML = 'name = "etl"\ncommand = ["./run.sh"]\ndependencies = ["model-1"]\n[env]\nLEVEL = "info"\n'
BASE = JobSpec(name="etl", command=("./run.sh",), dependencies=(BundleId("model-1"),), env={"LEVEL": "info"})
DIGESTS = {BundleId("etl-1"): Digest("a" * 64), BundleId("model-1"): Digest("b" * 64)}
RULES = HostRules(BundleTrust(TrustMode.ENFORCE, (public(KEY),), "*"), "prod", {})


def claim(spec: JobSpec, signature: Envelope | None = None) -> JobClaim:
    return JobClaim(JobId("etl-12345678"), BundleId("etl-1"), spec.dependencies, spec, signature)


def signed(conf: dict[str, str], key: Ed25519PrivateKey = KEY, **changes: Any) -> Envelope:
    facts: dict[str, Any] = {
        "cluster": "prod",
        "id": JobId("etl-12345678"),
        "bundle": SignedContent(BundleId("etl-1"), DIGESTS[BundleId("etl-1")]),
        "dependencies": (SignedContent(BundleId("model-1"), DIGESTS[BundleId("model-1")]),),
        "name": None,
        "workers": None,
        "conf": conf,
        "spec": with_overrides(BASE, None, None, conf),
        **changes,
    }
    return sign(JobStatement(**facts), key)


@given(
    conf=st.dictionaries(
        st.sampled_from(["env.LEVEL", "env.X", "stop_grace_secs", "restart.policy"]), st.just("always")
    )
)
def test_only_signed_overrides_are_run(conf: dict[str, str]) -> None:
    """The author of a rogue record would choose what runs."""
    conf = {key: "3" if key == "stop_grace_secs" else value for key, value in conf.items()}
    changed = with_overrides(BASE, None, None, conf)

    assert changed == spec_to_run(claim(changed, signed(conf)), TOML, DIGESTS, RULES)
    if changed != BASE:
        assert "job_not_signed" == refused(lambda: spec_to_run(claim(changed), TOML, DIGESTS, RULES))
        assert "job_not_signed" == refused(lambda: spec_to_run(claim(BASE, signed(conf)), TOML, DIGESTS, RULES))
        assert "unknown_key" == refused(lambda: spec_to_run(claim(changed, signed(conf, OTHER)), TOML, DIGESTS, RULES))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"command": ("sh", "-c", "evil")}, "command"),
        ({"env": {"LEVEL": "info", "LD_PRELOAD": "x"}}, "env.LD_PRELOAD"),
        ({"env": {}}, "env.LEVEL"),
        ({"dependencies": ()}, "dependencies"),
        ({"name": "other"}, "name"),
        ({"stop_grace_secs": 99.0}, "stop_grace_secs"),
    ],
)
def test_a_changed_record_is_refused_and_the_difference_named(changes: dict[str, Any], named: str) -> None:
    """A host would run what the record says, or its operator could not tell what was changed."""
    with pytest.raises(TorrentdistError) as caught:
        spec_to_run(claim(msgspec.structs.replace(BASE, **changes)), TOML, DIGESTS, RULES)

    assert "job_not_signed" == caught.value.code
    assert f"another {named} than" in caught.value.message


def test_an_unsigned_job_is_what_its_bundle_says_with_the_hosts_defaults() -> None:
    """A signed bundle could not be submitted by people without a key, or masters' defaults would
    change what runs."""
    own = HostRules(RULES.trust, "prod", {"stop_grace_secs": 7})
    completed = msgspec.structs.replace(BASE, stop_grace_secs=7.0)

    assert msgspec.structs.replace(BASE, workers=1) == spec_to_run(
        claim(msgspec.structs.replace(BASE, workers=9)), TOML, DIGESTS, RULES
    )
    assert completed == spec_to_run(claim(completed), TOML, DIGESTS, own)
    assert "job_not_signed" == refused(lambda: spec_to_run(claim(completed), TOML, DIGESTS, RULES))
    assert "job_not_signed" == refused(lambda: spec_to_run(claim(BASE), None, DIGESTS, RULES))


def test_a_signature_must_name_the_very_contents() -> None:
    """A dependency could be exchanged under its id, or a signature used for another cluster."""
    model = SignedContent(BundleId("model-1"), Digest("c" * 64))
    wrong: list[dict[str, Any]] = [
        {"dependencies": (model,)},
        {"dependencies": ()},
        {"cluster": "staging"},
        {"id": JobId("etl-87654321")},
        {"bundle": SignedContent(BundleId("etl-1"), Digest("c" * 64))},
        {"spec": msgspec.structs.replace(BASE, command=("evil",))},
    ]

    assert {"bad_signature"} == {
        refused(lambda w=each: spec_to_run(claim(BASE, signed({}, **w)), TOML, DIGESTS, RULES))  # type: ignore[misc]
        for each in wrong
    }
