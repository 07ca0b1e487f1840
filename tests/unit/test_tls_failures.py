"""What a user reads when a secure connection could not be made."""

from __future__ import annotations

import ssl

import pytest

from torrentdist.http.tls_failures import tls_sentence

UNKNOWN_CA = "its certificate is not of the CA that we trust (client.ca_file, tls.ca_file)"


def unproven(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "as OpenSSL says"
    return error


def failed(reason: str, text: str = "text") -> ssl.SSLError:
    error = ssl.SSLError(1, text)
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (10, "its certificate has expired, or one of the two clocks is wrong"),
        (9, "its certificate is not valid yet, or one of the two clocks is wrong"),
        (62, "its certificate is for other addresses than m1"),
        (64, "its certificate is for other addresses than m1"),
        *((code, UNKNOWN_CA) for code in (2, 18, 19, 20, 21)),
        (26, "its certificate is not a server's"),
        (99, "its certificate is refused: as OpenSSL says"),
    ],
)
def test_a_certificate_that_proves_nothing_is_explained(code: int, said: str) -> None:
    """A user looks for a wrong CA where a clock is wrong, or the other way round."""
    assert said == tls_sentence(unproven(code), "m1")


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("WRONG_VERSION_NUMBER", "it does not speak TLS: is it an http:// URL?"),
        ("HTTP_REQUEST", "it does not speak TLS: is it an http:// URL?"),
        ("RECORD_LAYER_FAILURE", "it does not speak TLS: is it an http:// URL?"),
        ("PACKET_LENGTH_TOO_LONG", "it does not speak TLS: is it an http:// URL?"),
        ("SSLV3_ALERT_CERTIFICATE_REVOKED", "it refuses our certificate, which was revoked"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "it wants a certificate of ours, and there is none"),
        ("SOME_NEW_REASON", "no secure connection: some new reason"),
    ],
)
def test_a_refusal_of_the_other_side_is_explained(reason: str, said: str) -> None:
    """A user reads a name of OpenSSL's instead of what to do."""
    assert said == tls_sentence(failed(reason), "m1")


def test_a_failure_without_a_reason_keeps_its_words() -> None:
    """A user reads `no secure connection:` and nothing more."""
    assert "no secure connection: it broke" == tls_sentence(failed("", "it broke"), "m1")
