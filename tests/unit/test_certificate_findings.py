"""What the doctor says of the certificates that this host's configuration names."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tls_site import make_authority

from torrentdist.client import tls_diagnosis
from torrentdist.client.tls_diagnosis import LOW_SHARE, certificates
from torrentdist.model.configuration.config import ClientConfig, Config, TlsConfig
from torrentdist.model.wire.doctor_views import Finding, Verdict
from torrentdist.security.authority.certificates import facts_of
from torrentdist.security.authority.pem_texts import parse_certificate

DAY = 86_400.0


class Clock:
    """A clock that a test sets."""

    now = time.time()

    def time(self) -> float:
        return self.now


def found_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, more_secs: float = 0.0) -> list[Finding]:
    """Returns the findings when this share of the certificate's life is over."""
    files = make_authority(tmp_path / "ca").files("m1")
    assert files.certificate is not None
    facts, clock = facts_of(parse_certificate(files.certificate.read_bytes())), Clock()
    clock.now = facts.begins_at + share * (facts.expires_at - facts.begins_at) + more_secs
    monkeypatch.setattr(tls_diagnosis, "time", clock)
    named = TlsConfig(ca_file=str(files.ca), certificate_file=str(files.certificate), key_file=str(files.key))
    return certificates(Config(tls=named))


@pytest.mark.parametrize(
    ("share", "more_secs", "verdict", "said"),
    [
        (0.0, 0.0, Verdict.OK, "valid for"),
        (0.0, -60.0, Verdict.FAIL, "it is not valid yet"),
        (1 - LOW_SHARE, -60.0, Verdict.OK, "valid for"),
        (1 - LOW_SHARE, 60.0, Verdict.WARN, "it expires in"),
        (1.0, -DAY / 2, Verdict.WARN, "it expires in 0.5 days"),
        (1.0, 60.0, Verdict.FAIL, "it has expired"),
    ],
)
def test_a_certificate_is_judged_by_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, more_secs: float, verdict: Verdict, said: str
) -> None:
    """An operator learns that a certificate was not renewed when all connections fail."""
    (finding,) = found_at(tmp_path, monkeypatch, share, more_secs)

    assert ("certificate", verdict) == (finding.check, finding.verdict)
    assert finding.detail.startswith(said)
    assert finding.subject.endswith(".pem")


def test_each_section_is_looked_at(tmp_path: Path) -> None:
    """The certificate of a person's commands expires unnoticed, or a missing file passes for a
    good one."""
    files = make_authority(tmp_path / "ca").files("m1")
    gone = str(tmp_path / "nothing")
    findings = certificates(Config(tls=TlsConfig(ca_file=gone), client=ClientConfig(ca_file=gone)))

    assert [("tls", Verdict.FAIL), ("client", Verdict.FAIL)] == [(each.subject, each.verdict) for each in findings]
    assert [] == certificates(Config(client=ClientConfig(ca_file=str(files.ca))))
    assert [] == certificates(Config())
