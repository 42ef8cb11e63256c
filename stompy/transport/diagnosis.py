"""Error messages for errors of the operating system and of TLS, and detection of a peer of another protocol."""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING, Any

from stompy.printable import printable
from stompy.world import socket

if TYPE_CHECKING:
    import ssl

_MESSAGES = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset by the peer",
    errno.ECONNABORTED: "connection aborted",
    errno.EPIPE: "the peer accepts no more bytes",
    errno.ENOTCONN: "the connection is closed",
    errno.ETIMEDOUT: "the network timed out waiting for the peer",
    errno.EHOSTUNREACH: "no route to the host",
    errno.ENETUNREACH: "network unreachable",
    errno.EADDRINUSE: "the address is already in use",
    errno.EADDRNOTAVAIL: "the address does not exist on this machine",
    errno.EACCES: "permission denied",
    errno.EMFILE: "too many open files in this process",
    errno.ENFILE: "too many open files on this machine",
    errno.EAFNOSUPPORT: "this machine does not support that address family",
}

_NAME_NOT_FOUND = {
    getattr(socket, name) for name in ("EAI_NONAME", "EAI_NODATA", "EAI_ADDRFAMILY") if hasattr(socket, name)
}


def describe_os_error(error: OSError) -> str:
    """Return an error message without error numbers, e.g. `connection refused`."""
    message = _MESSAGES.get(error.errno) if error.errno is not None else None
    return message or error.strerror or str(error) or type(error).__name__


def describe_lookup_error(error: OSError, *, host: str) -> str:
    """Return an error message for a failed name lookup, e.g. `host name not found: example.invalid`."""
    if isinstance(error, socket.gaierror):
        if error.errno in _NAME_NOT_FOUND:
            return f"host name not found: {host}"
        if error.errno == socket.EAI_AGAIN:
            return f"the name service gave no answer for {host}; it may do so later"
    return f"host name lookup failed for {host}: {describe_os_error(error)}"


GREETING_SIZE = 16
"""The number of bytes that `detect_protocol` needs."""

_PREFIXES = (
    (b"\x15\x03", "TLS"),
    (b"\x16\x03", "TLS"),
    (b"AMQP", "AMQP"),
    (b"HTTP/", "HTTP"),
    (b"GET ", "HTTP"),
    (b"ERROR\n", "STOMP"),
    (b"ERROR\r\n", "STOMP"),
    (b"CONNECT\n", "STOMP"),
    (b"CONNECT\r\n", "STOMP"),
    (b"STOMP\n", "STOMP"),
    (b"STOMP\r\n", "STOMP"),
)
_OPENWIRE = b"\x01ActiveMQ"
"""WIREFORMAT_INFO and its magic; the size of the command may come before it."""
_MQTT_ANSWERS = (0x20, 0xE0)
"""CONNACK and DISCONNECT; the second byte is the number of bytes that follow."""


def detect_protocol(start: bytes) -> str | None:
    """Return the protocol of a peer by its first bytes, or `None` if it is unknown.

    Args:
        start: the first bytes of the peer, `GREETING_SIZE` of them if there are so many.
    """
    for prefix, protocol in _PREFIXES:
        if start.startswith(prefix):
            return protocol
    if start.startswith(_OPENWIRE) or start[4:].startswith(_OPENWIRE):
        return "OpenWire"
    if len(start) >= 2 and start[0] in _MQTT_ANSWERS and start[1] == len(start) - 2:
        return "MQTT"
    return None


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

_NO_TLS = ("not-tls", "the peer does not speak TLS on this port")
_NO_VERSION = ("no-common-version", "no version of TLS in common with the peer")
_HANDSHAKE_ERRORS = {
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "HTTP_REQUEST": _NO_TLS,
    "HTTPS_PROXY_REQUEST": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "UNSUPPORTED_PROTOCOL": _NO_VERSION,
    "PROTOCOL_VERSION": _NO_VERSION,
    "NO_PROTOCOLS_AVAILABLE": _NO_VERSION,
    "VERSION_TOO_LOW": _NO_VERSION,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": ("client-certificate", "the peer sent no certificate"),
    "HANDSHAKE_FAILURE": (
        "other",
        "the peer rejected the TLS handshake: no cipher in common, or it requires a client certificate",
    ),
}
"""OpenSSL's name of an error or of the peer's alert, to the reason and the error message."""

_EXPIRED, _NOT_YET, _REVOKED, _NO_LIST = 10, 9, 23, 3
_SELF_SIGNED, _UNTRUSTED_ROOT = 18, 19
_NO_ISSUER = (2, 20, 21)
_OTHER_HOST = (62, 64)
"""Codes of OpenSSL, `X509_V_ERR_...`, for which `ssl` has no names."""


def alert_of(error: ssl.SSLError) -> str | None:
    """Return the name of the alert that the peer sent, such as `UNKNOWN_CA`, or `None`."""
    found = re.search(r"ALERT[_ ](.+)", error.reason or "", re.IGNORECASE)
    return found[1].upper().replace(" ", "_") if found else None


def own_certificate_refused(error: ssl.SSLError) -> str | None:
    """Return why the peer rejected the client certificate, or `None` if the error has another reason."""
    return _CLIENT_CERTIFICATE_ALERTS.get(alert_of(error) or "")


def peer_chain(session: ssl.SSLObject) -> list[dict[str, Any]]:
    """Return the certificates that the peer sent, its own first, also after a failed handshake; empty if unknown.

    It uses a private attribute, as the public methods of `ssl` do not return a certificate that was rejected.
    """
    inner = getattr(session, "_sslobj", None)
    try:
        return [certificate.get_info() for certificate in inner.get_unverified_chain() or ()]  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):
        return []


def explain_tls(
    error: ssl.SSLError, *, wanted: str, chain: list[dict[str, Any]], start: bytes = b""
) -> tuple[str, str]:
    """Return the reason (see `stompy.errors.TlsError`) and the error message for a failed handshake.

    Args:
        error: the error of the handshake.
        wanted: the host that the certificate must be valid for.
        chain: the certificates that the peer sent, its own first; may be empty.
        start: the first bytes that the peer sent.
    """
    import ssl  # late, as it takes time; the caller has imported it

    if isinstance(error, ssl.SSLCertVerificationError):
        return _explain_certificate(error, wanted, chain)
    alert, detected = alert_of(error), detect_protocol(start)
    if detected not in (None, "TLS"):
        plain = " (stomp://, not stomp+ssl://)" if detected == "STOMP" else ""
        return "not-tls", f"the peer speaks {detected} on this port, not TLS{plain}"
    if isinstance(error, ssl.SSLEOFError):
        return "closed", (
            "the peer closed the connection in the TLS handshake; does it speak TLS on this port? "
            "It may also require a client certificate, or have rejected this one"
        )
    known = _HANDSHAKE_ERRORS.get(error.reason or "") or _HANDSHAKE_ERRORS.get(alert or "")
    if known is not None:
        return known
    if alert is not None:
        return "other", f"the peer rejected the TLS handshake ({alert.lower().replace('_', ' ')})"
    return "other", f"the TLS handshake failed ({openssl_message(error)})"


def openssl_message(error: ssl.SSLError) -> str:
    """Return the error message of OpenSSL, without numbers and source lines."""
    return (error.reason or str(error)).lower().replace("_", " ")


def _explain_certificate(
    error: ssl.SSLCertVerificationError, wanted: str, chain: list[dict[str, Any]]
) -> tuple[str, str]:
    code, (own, *others) = error.verify_code, chain or [{}]
    dated = "the peer's certificate, or that of an authority in its chain," if others else "the peer's certificate"
    if code == _EXPIRED:
        return "expired", f"{dated} has expired{_date(own, 'notAfter', ' on ')}"
    if code == _NOT_YET:
        return "not-yet-valid", f"{dated} is not valid yet{_date(own, 'notBefore', '; it is valid from ')}"
    if code in _OTHER_HOST:
        names = ", ".join(str(name) for _, name in own.get("subjectAltName", ())) or "no host"
        return "wrong-host", f"the peer's certificate is for {printable(names)}, not for {wanted}"
    if code == _SELF_SIGNED:
        return "self-signed", "the peer's certificate is self-signed; to trust it nevertheless, set ca="
    if code == _REVOKED:
        return "revoked", "the peer's certificate is revoked"
    if code == _NO_LIST:
        return "no-revocation-list", f"there is no revocation list of {_issuer(own)}, who issued the peer's certificate"
    if code == _UNTRUSTED_ROOT or code in _NO_ISSUER:
        hint = "" if others or code == _UNTRUSTED_ROOT else "; or the peer did not send an intermediate certificate"
        issuer = _issuer((own, *others)[-1])
        return "unknown-authority", (
            f"the peer's certificate was issued by {issuer}, which is not trusted (see ca=){hint}"
        )
    return "bad-certificate", f"the peer's certificate is not valid: {error.verify_message}"


def _date(certificate: dict[str, Any], key: str, before: str) -> str:
    return f"{before}{certificate[key]}" if certificate.get(key) else ""


def _issuer(certificate: dict[str, Any]) -> str:
    parts = {key: value for part in certificate.get("issuer", ()) for key, value in part}
    named = parts.get("commonName") or parts.get("organizationalUnitName") or parts.get("organizationName")
    return repr(named) if named else "an unknown authority"
