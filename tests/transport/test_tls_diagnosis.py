from __future__ import annotations

import ssl
from typing import Any

import pytest

from stompy.transport.diagnosis import alert_of, explain_tls, openssl_message, own_certificate_refused, peer_chain


def fault(reason: str | None, kind: type[ssl.SSLError] = ssl.SSLError) -> ssl.SSLError:
    error = kind(1, f"[SSL: {reason}] message (_ssl.c:1)")
    error.reason = reason  # type: ignore[assignment]
    return error


def refused(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code, error.verify_message = code, "message of OpenSSL"
    return error


def certificate(issuer: str = "Somebody", **more: Any) -> dict[str, Any]:
    return {"issuer": ((("commonName", issuer),),), **more}


@pytest.mark.parametrize("written", ["TLSV1_ALERT_UNKNOWN_CA", "tlsv1 alert unknown ca", "SSL/TLS alert unknown ca"])
def test_an_alert_is_recognised_as_each_release_of_openssl_writes_it(written: str) -> None:
    assert alert_of(fault(written)) == "UNKNOWN_CA"
    assert own_certificate_refused(fault(written)) == "the peer does not trust the authority of the client certificate"


@pytest.mark.parametrize(
    "reason", ["WRONG_VERSION_NUMBER", None, "TLSV1_ALERT_DECODE_ERROR", "SSLV3_ALERT_HANDSHAKE_FAILURE"]
)
def test_what_is_not_about_our_certificate_is_not_taken_for_it(reason: str | None) -> None:
    assert own_certificate_refused(fault(reason)) is None


@pytest.mark.parametrize(
    ("error", "reason", "message"),
    [
        (fault("WRONG_VERSION_NUMBER"), "not-tls", "does not speak TLS on this port"),
        (fault("HTTPS_PROXY_REQUEST"), "not-tls", "does not speak TLS on this port"),
        (fault("TLSV1_ALERT_PROTOCOL_VERSION"), "no-common-version", "no version of TLS in common"),
        (fault("UNSUPPORTED_PROTOCOL"), "no-common-version", "no version of TLS in common"),
        (fault("SSLV3_ALERT_HANDSHAKE_FAILURE"), "other", "no cipher in common, or it requires a client certificate"),
        (fault("TLSV1_ALERT_INTERNAL_ERROR"), "other", "rejected the TLS handshake (internal error)"),
        (fault("PEER_DID_NOT_RETURN_A_CERTIFICATE"), "client-certificate", "sent no certificate"),
        (fault("BAD_SIGNATURE"), "other", "the TLS handshake failed (bad signature)"),
        (fault("x", ssl.SSLEOFError), "closed", "closed the connection in the TLS handshake; does it speak TLS"),
    ],
    ids=lambda value: value.reason if isinstance(value, ssl.SSLError) else None,
)
def test_a_handshake_that_failed_is_explained(error: ssl.SSLError, reason: str, message: str) -> None:
    found, text = explain_tls(error, wanted="b.example", chain=[])
    assert found == reason
    assert message in text


@pytest.mark.parametrize(
    ("code", "chain", "reason", "message"),
    [
        (10, [certificate(notAfter="Nov 1")], "expired", "the peer's certificate has expired on Nov 1"),
        (10, [certificate(), certificate()], "expired", "or that of an authority in its chain, has expired"),
        (9, [certificate(notBefore="Nov 1")], "not-yet-valid", "is not valid yet; it is valid from Nov 1"),
        (
            62,
            [certificate(subjectAltName=(("DNS", "a"), ("DNS", "b")))],
            "wrong-host",
            "is for a, b, not for b.example",
        ),
        (62, [certificate()], "wrong-host", "is for no host, not for b.example"),
        (64, [], "wrong-host", "not for b.example"),
        (18, [certificate()], "self-signed", "self-signed; to trust it nevertheless, set ca="),
        (19, [certificate(), certificate("Root")], "unknown-authority", "'Root', which is not trusted"),
        (20, [certificate("Root")], "unknown-authority", "'Root', which is not trusted"),
        (20, [certificate("Root")], "unknown-authority", "did not send an intermediate certificate"),
        (20, [certificate("Middle"), certificate("Root")], "unknown-authority", "'Root', which is not"),
        (20, [], "unknown-authority", "an unknown authority, which is not trusted"),
        (23, [certificate()], "revoked", "is revoked"),
        (3, [certificate("Root")], "no-revocation-list", "no revocation list of 'Root'"),
        (26, [certificate()], "bad-certificate", "message of OpenSSL"),
    ],
)
def test_a_certificate_that_is_not_taken_is_explained(
    code: int, chain: list[dict[str, Any]], reason: str, message: str
) -> None:
    found, text = explain_tls(refused(code), wanted="b.example", chain=chain)
    assert found == reason
    assert message in text


def test_a_whole_chain_is_not_blamed_on_an_intermediate() -> None:
    assert "intermediate" not in explain_tls(refused(20), wanted="b", chain=[certificate(), certificate("Root")])[1]


def test_an_issuer_is_named_by_its_organisation_where_it_has_no_other_name() -> None:
    chain = [{"issuer": ((("organizationName", "The Firm"),),)}]
    assert "'The Firm'" in explain_tls(refused(20), wanted="b", chain=chain)[1]


def test_the_message_of_openssl_comes_without_its_numbers() -> None:
    assert openssl_message(fault("BAD_RECORD_MAC")) == "bad record mac"


def test_a_session_that_got_no_certificate_has_no_chain() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    assert peer_chain(context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="b")) == []
