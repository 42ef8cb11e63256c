"""Error messages for failed TLS handshakes."""

from __future__ import annotations

import re
import ssl
from typing import Any

from stompy.printable import printable
from stompy.transport.diagnosis import detect_protocol

_EXPIRED, _NOT_YET, _REVOKED, _NO_LIST = 10, 9, 23, 3
_SELF_SIGNED, _UNTRUSTED_ROOT = 18, 19
_NO_ISSUER = frozenset({2, 20, 21})
_OTHER_HOST = frozenset({62, 64})
"""Codes of OpenSSL, `X509_V_ERR_...`, for which `ssl` has no names."""

_CLIENT_CERTIFICATE_ALERTS = {
    "BAD_CERTIFICATE": "the peer rejected the client certificate",
    "UNSUPPORTED_CERTIFICATE": "the peer does not support the type of the client certificate",
    "CERTIFICATE_REVOKED": "the peer rejected the client certificate: it is revoked",
    "CERTIFICATE_EXPIRED": "the peer rejected the client certificate: it has expired",
    "CERTIFICATE_UNKNOWN": "the peer rejected the client certificate",
    "UNKNOWN_CA": "the peer does not trust the authority of the client certificate",
    "ACCESS_DENIED": "the client certificate is valid, but the peer denied access to its owner",
    "CERTIFICATE_REQUIRED": "the peer requires a client certificate",
}
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE"})
_OTHER_VERSIONS = frozenset({"UNSUPPORTED_PROTOCOL", "PROTOCOL_VERSION", "NO_PROTOCOLS_AVAILABLE", "VERSION_TOO_LOW"})


def alert_of(error: ssl.SSLError) -> str | None:
    """Return the name of the alert that the peer sent, such as `UNKNOWN_CA`, or `None`."""
    found = re.search(r"ALERT[_ ](.+)", error.reason or "", re.IGNORECASE)
    return found[1].upper().replace(" ", "_") if found else None


def own_certificate_refused(error: ssl.SSLError) -> str | None:
    """Return why the peer rejected the client certificate, or `None` if the error has another reason."""
    alert = alert_of(error)
    return None if alert is None else _CLIENT_CERTIFICATE_ALERTS.get(alert)


def peer_chain(session: ssl.SSLObject) -> list[dict[str, Any]]:
    """Return the certificates that the peer sent, its own first, also after a failed handshake; empty if unknown.

    It uses a private attribute, as the public methods of `ssl` do not return a certificate that was rejected.
    """
    inner = getattr(session, "_sslobj", None)
    try:
        return [certificate.get_info() for certificate in inner.get_unverified_chain() or ()]  # type: ignore[union-attr]
    except (AttributeError, ssl.SSLError, ValueError):
        return []


def explain(error: ssl.SSLError, *, wanted: str, chain: list[dict[str, Any]], start: bytes = b"") -> tuple[str, str]:
    """Return the reason (see `stompy.errors.TlsError`) and the error message for a failed handshake.

    Args:
        error: the error of the handshake.
        wanted: the host that the certificate must be valid for.
        chain: the certificates that the peer sent, its own first; may be empty.
        start: the first bytes that the peer sent.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _explain_certificate(error, wanted, chain)
    reason, alert, detected = error.reason or "", alert_of(error), detect_protocol(start)
    if detected not in (None, "TLS"):
        plain = " (stomp://, not stomp+ssl://)" if detected == "STOMP" else ""
        return "not-tls", f"the peer speaks {detected} on this port, not TLS{plain}"
    if isinstance(error, ssl.SSLEOFError):
        return "closed", _CLOSED
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "client-certificate", "the peer sent no certificate"
    if reason in _NO_TLS:
        return "not-tls", "the peer does not speak TLS on this port"
    if reason in _OTHER_VERSIONS or alert in _OTHER_VERSIONS:
        return "no-common-version", "no version of TLS in common with the peer"
    if alert == "HANDSHAKE_FAILURE":
        return "other", "the peer rejected the TLS handshake: no cipher in common, or it requires a client certificate"
    if alert is not None:
        return "other", f"the peer rejected the TLS handshake ({alert.lower().replace('_', ' ')})"
    return "other", f"the TLS handshake failed ({openssl_message(error)})"


def openssl_message(error: ssl.SSLError) -> str:
    """Return the error message of OpenSSL, without numbers and source lines."""
    return (error.reason or str(error)).lower().replace("_", " ")


def _explain_certificate(
    error: ssl.SSLCertVerificationError, wanted: str, chain: list[dict[str, Any]]
) -> tuple[str, str]:
    code = error.verify_code
    own = chain[0] if chain else {}
    if code == _EXPIRED:
        return "expired", f"{_certificate_of(chain)} has expired{_date(own, 'notAfter', ' on ')}"
    if code == _NOT_YET:
        return (
            "not-yet-valid",
            f"{_certificate_of(chain)} is not valid yet{_date(own, 'notBefore', '; it is valid from ')}",
        )
    if code in _OTHER_HOST:
        names = ", ".join(str(name) for _, name in own.get("subjectAltName", ())) or "no host"
        return "wrong-host", f"the peer's certificate is for {printable(names)}, not for {wanted}"
    if code == _SELF_SIGNED:
        return "self-signed", "the peer's certificate is self-signed; to trust it nevertheless, set ca="
    if code == _REVOKED:
        return "revoked", "the peer's certificate is revoked"
    if code == _NO_LIST:
        return "no-revocation-list", f"there is no revocation list of {_issuer(own)}, who issued the peer's certificate"
    if code == _UNTRUSTED_ROOT or (code in _NO_ISSUER and len(chain) > 1):
        return (
            "unknown-authority",
            f"the peer's certificate was issued by {_issuer(chain[-1] if chain else {})}, {_NOT_TRUSTED}",
        )
    if code in _NO_ISSUER:
        return "unknown-authority", (
            f"the peer's certificate was issued by {_issuer(own)}, {_NOT_TRUSTED}; "
            "or the peer did not send an intermediate certificate"
        )
    return "bad-certificate", f"the peer's certificate is not valid: {error.verify_message}"


_CLOSED = (
    "the peer closed the connection in the TLS handshake; does it speak TLS on this port? "
    "It may also require a client certificate, or have rejected this one"
)
_NOT_TRUSTED = "which is not trusted (see ca=)"


def _certificate_of(chain: list[dict[str, Any]]) -> str:
    return (
        "the peer's certificate" if len(chain) <= 1 else "the peer's certificate, or that of an authority in its chain,"
    )


def _date(certificate: dict[str, Any], key: str, before: str) -> str:
    return f"{before}{certificate[key]}" if certificate.get(key) else ""


def _issuer(certificate: dict[str, Any]) -> str:
    parts = {key: value for part in certificate.get("issuer", ()) for key, value in part}
    named = parts.get("commonName") or parts.get("organizationalUnitName") or parts.get("organizationName")
    return repr(named) if named else "an unknown authority"
