"""What an error of OpenSSL means for a STOMP session, in plain words."""

from __future__ import annotations

import re
import ssl
from typing import Any

from stompy.printable import printable
from stompy.transport.diagnosis import protocol_of

_EXPIRED, _NOT_YET, _REVOKED, _NO_LIST = 10, 9, 23, 3
_SELF_SIGNED, _UNTRUSTED_ROOT = 18, 19
_NO_ISSUER = frozenset({2, 20, 21})
_OTHER_HOST = frozenset({62, 64})
"""Verification results of OpenSSL, `X509_V_ERR_...`; `ssl` has no names for them."""

_ABOUT_OUR_CERTIFICATE = {
    "BAD_CERTIFICATE": "the peer does not take our certificate",
    "UNSUPPORTED_CERTIFICATE": "the peer cannot use a certificate of our kind",
    "CERTIFICATE_REVOKED": "our certificate is revoked, says the peer",
    "CERTIFICATE_EXPIRED": "our certificate has expired, says the peer",
    "CERTIFICATE_UNKNOWN": "the peer does not take our certificate",
    "UNKNOWN_CA": "the peer does not trust the authority of our certificate",
    "ACCESS_DENIED": "our certificate is good, but the peer lets its owner not in",
    "CERTIFICATE_REQUIRED": "the peer wants a certificate of ours, and got none",
}
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "RECORD_LAYER_FAILURE"})
_OTHER_VERSIONS = frozenset({"UNSUPPORTED_PROTOCOL", "PROTOCOL_VERSION", "NO_PROTOCOLS_AVAILABLE", "VERSION_TOO_LOW"})


def alert_of(error: ssl.SSLError) -> str | None:
    """Return the name of the alert that the peer sent, such as `UNKNOWN_CA`, or `None` if it sent none."""
    found = re.search(r"ALERT[_ ](.+)", error.reason or "", re.IGNORECASE)
    return found[1].upper().replace(" ", "_") if found else None


def own_certificate_refused(error: ssl.SSLError) -> str | None:
    """Return why the peer does not take our certificate, or `None` if the error is about something else."""
    alert = alert_of(error)
    return None if alert is None else _ABOUT_OUR_CERTIFICATE.get(alert)


def peer_chain(session: ssl.SSLObject) -> list[dict[str, Any]]:
    """Return the certificates that the peer sent, its own first, as far as they can be had; also of a failed handshake.

    What `ssl` offers in public tells nothing of a certificate that was refused.
    """
    inner = getattr(session, "_sslobj", None)
    try:
        return [certificate.get_info() for certificate in inner.get_unverified_chain() or ()]  # type: ignore[union-attr]
    except (AttributeError, ssl.SSLError, ValueError):
        return []


def explain(error: ssl.SSLError, *, wanted: str, chain: list[dict[str, Any]], start: bytes = b"") -> tuple[str, str]:
    """Return the reason (see `stompy.errors.TlsError`) and the words for a handshake that failed.

    Args:
        error: of the handshake.
        wanted: the host that the certificate must be for.
        chain: the certificates that the peer sent, its own first, as `ssl` tells them; may be empty.
        start: the first bytes that the peer sent.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _explain_certificate(error, wanted, chain)
    reason, alert, spoken = error.reason or "", alert_of(error), protocol_of(start)
    if spoken not in (None, "TLS"):
        plain = " (stomp://, not stomp+ssl://)" if spoken == "STOMP" else ""
        return "not-tls", f"the peer speaks {spoken} on this port, not TLS{plain}"
    if isinstance(error, ssl.SSLEOFError):
        return "closed", _CLOSED
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "client-certificate", "the peer showed no certificate"
    if reason in _NO_TLS:
        return "not-tls", "the peer does not speak TLS on this port"
    if reason in _OTHER_VERSIONS or alert in _OTHER_VERSIONS:
        return "no-common-version", "no version of TLS in common with the peer"
    if alert == "HANDSHAKE_FAILURE":
        return "other", "the peer refused the TLS handshake: no cipher in common, or it wants a certificate of ours"
    if alert is not None:
        return "other", f"the peer refused the TLS handshake ({alert.lower().replace('_', ' ')})"
    return "other", f"the TLS handshake failed ({in_short(error)})"


def in_short(error: ssl.SSLError) -> str:
    """Return the words of OpenSSL, without its numbers and places."""
    return (error.reason or str(error)).lower().replace("_", " ")


def _explain_certificate(
    error: ssl.SSLCertVerificationError, wanted: str, chain: list[dict[str, Any]]
) -> tuple[str, str]:
    code = error.verify_code
    own = chain[0] if chain else {}
    if code == _EXPIRED:
        return "expired", f"{_whose(chain)} has expired{_date(own, 'notAfter', ' on ')}"
    if code == _NOT_YET:
        return "not-yet-valid", f"{_whose(chain)} is not valid yet{_date(own, 'notBefore', '; it begins on ')}"
    if code in _OTHER_HOST:
        names = ", ".join(str(name) for _, name in own.get("subjectAltName", ())) or "no host at all"
        return "wrong-host", f"the peer's certificate is for {printable(names)}, and not for {wanted}"
    if code == _SELF_SIGNED:
        return "self-signed", "the peer's certificate is self-signed; where that is meant, trust it with ca="
    if code == _REVOKED:
        return "revoked", "the peer's certificate is revoked"
    if code == _NO_LIST:
        words = f"the peer's certificate comes from {_issuer(own)}, of whom no revocation list was given"
        return "no-revocation-list", words
    if code == _UNTRUSTED_ROOT or (code in _NO_ISSUER and len(chain) > 1):
        return (
            "unknown-authority",
            f"the peer's certificate comes from {_issuer(chain[-1] if chain else {})}, {_NOT_TRUSTED}",
        )
    if code in _NO_ISSUER:
        return "unknown-authority", (
            f"the peer's certificate comes from {_issuer(own)}, {_NOT_TRUSTED}; "
            "or the peer keeps back the intermediate certificate that would lead to one that is"
        )
    return "bad-certificate", f"the peer's certificate is no good: {error.verify_message}"


_CLOSED = (
    "the peer closed the connection in the TLS handshake; does it speak TLS on this port? "
    "It may also want a certificate of ours, or not take this one"
)
_NOT_TRUSTED = "an authority that is not trusted here (see ca=)"


def _whose(chain: list[dict[str, Any]]) -> str:
    return "the peer's certificate" if len(chain) <= 1 else "the peer's certificate, or one that vouches for it,"


def _date(certificate: dict[str, Any], key: str, before: str) -> str:
    return f"{before}{certificate[key]}" if certificate.get(key) else ""


def _issuer(certificate: dict[str, Any]) -> str:
    parts = {key: value for part in certificate.get("issuer", ()) for key, value in part}
    named = parts.get("commonName") or parts.get("organizationalUnitName") or parts.get("organizationName")
    return repr(named) if named else "somebody"
