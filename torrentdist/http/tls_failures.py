"""Says in plain words why a secure connection could not be made, and what to do about it.

Pure: no I/O. The codes are OpenSSL's, which differ little between its releases; what is not known
here keeps OpenSSL's own words.
"""

import ssl
from typing import Final

_NOT_YET_VALID, _EXPIRED, _HOST_NAME, _ADDRESS, _PURPOSE = 9, 10, 62, 64, 26
_UNKNOWN_CA: Final = frozenset({2, 18, 19, 20, 21})
_CLOCKS: Final = "or one of the two clocks is wrong"

_REFUSALS: Final = {
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it wants a certificate of ours, and there is none",
    "TLSV1_ALERT_UNKNOWN_CA": "it refuses our certificate, which is not of the CA that it trusts",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": f"it refuses our certificate, which has expired ({_CLOCKS})",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it refuses our certificate, which was revoked",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it refuses our certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": f"it refuses our certificate, which is damaged or not valid yet ({_CLOCKS})",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "it refuses our certificate, which is for another purpose",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it speaks another version of TLS; 1.3 is needed",
    "UNSUPPORTED_PROTOCOL": "it speaks another version of TLS; 1.3 is needed",
}
"""What a server's refusal means, by OpenSSL's name of it."""
_NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"})
ENDED_LIKE_HTTPS: Final = "; a port that speaks HTTPS ends plain HTTP like this: is it an https:// URL?"


def tls_sentence(exc: ssl.SSLError, host: str) -> str:
    """Returns the reason why the connection to `host` failed."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        return _unproven(exc, host)
    reason = exc.reason or ""
    if reason in _NO_TLS:
        return "it does not speak TLS: is it an http:// URL?"
    return _REFUSALS.get(reason) or f"no secure connection: {reason.replace('_', ' ').lower() or exc}"


def _unproven(exc: ssl.SSLCertVerificationError, host: str) -> str:
    code = exc.verify_code
    if code == _EXPIRED:
        return f"its certificate has expired, {_CLOCKS}"
    if code == _NOT_YET_VALID:
        return f"its certificate is not valid yet, {_CLOCKS}"
    if code in (_HOST_NAME, _ADDRESS):
        return f"its certificate is for other addresses than {host}"
    if code in _UNKNOWN_CA:
        return "its certificate is not of the CA that we trust (client.ca_file, tls.ca_file)"
    if code == _PURPOSE:
        return "its certificate is not a server's"
    return f"its certificate is refused: {exc.verify_message}"
