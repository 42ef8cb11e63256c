from __future__ import annotations

import pickle
import ssl
from pathlib import Path
from typing import Any

import pytest

from stompy.errors import ConfigurationError, InsecureTlsWarning
from stompy.transport.tls.context import client_context, server_context
from stompy.transport.tls.options import Tls
from tests.support.certificates import Certificates


def refusal(make: Any, tls: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        make(tls)
    return str(caught.value)


class TestClient:
    def test_by_default_it_checks_everything_against_the_systems_authorities(self) -> None:
        context = client_context(Tls())
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_RENEGOTIATION
        known = ssl.create_default_context()
        assert context.cert_store_stats() == known.cert_store_stats()

    def test_an_authority_given_is_the_only_one(self, certificates: Certificates) -> None:
        context = client_context(Tls(ca=certificates.ca))
        (trusted,) = context.get_ca_certs()
        assert ("organizationName", "Good Authority") in [pair for part in trusted["subject"] for pair in part]
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)

    def test_a_directory_of_authorities_is_taken(self, tmp_path: Path) -> None:
        context = client_context(Tls(ca=tmp_path))
        assert context.cert_store_stats()["x509_ca"] == 0  # OpenSSL looks into it when it has a name to look for
        assert context.verify_mode == ssl.CERT_REQUIRED

    def test_versions_are_bounded(self) -> None:
        context = client_context(Tls(minimum_version="1.2", maximum_version="1.2"))
        assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
        assert client_context(Tls(minimum_version="1.3")).minimum_version == ssl.TLSVersion.TLSv1_3

    def test_one_check_or_all_are_switched_off(self) -> None:
        with pytest.warns(InsecureTlsWarning):
            name, everything = Tls(insecure_skip_hostname=True), Tls(insecure_skip_verification=True)
        assert (client_context(name).verify_mode, client_context(name).check_hostname) == (ssl.CERT_REQUIRED, False)
        assert client_context(everything).verify_mode == ssl.CERT_NONE

    def test_a_context_is_used_as_it_is_but_for_new_handshakes(self) -> None:
        own = ssl.create_default_context()
        assert client_context(own) is own
        assert own.options & ssl.OP_NO_RENEGOTIATION
        with pytest.raises(TypeError):
            pickle.dumps(own)

    def test_a_context_for_servers_is_refused(self) -> None:
        assert "is one for servers" in refusal(client_context, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def test_a_revocation_list_is_asked(self, certificates: Certificates) -> None:
        context = client_context(Tls(ca=certificates.ca, crl=certificates.crl()))
        assert context.verify_flags & ssl.VERIFY_CRL_CHECK_LEAF
        assert context.cert_store_stats()["crl"] == 1


class TestOwnCertificate:
    def test_an_encrypted_key_is_opened_by_text_or_by_what_returns_it(self, certificates: Certificates) -> None:
        cert = certificates.encrypted("hush")
        client_context(Tls(cert=cert, password="hush"))
        client_context(Tls(cert=cert, password=lambda: "hush"))

    def test_no_password_is_asked_for_on_the_terminal(self, certificates: Certificates) -> None:
        message = refusal(client_context, Tls(cert=certificates.encrypted("hush")))
        assert "is encrypted, and no password is set" in message

    def test_a_wrong_password_is_reported_and_not_shown(self, certificates: Certificates) -> None:
        message = refusal(client_context, Tls(cert=certificates.encrypted("hush"), password="loud"))
        assert "the password is wrong" in message
        assert "loud" not in message

    def test_a_key_of_another_certificate_is_reported(self, certificates: Certificates) -> None:
        message = refusal(client_context, Tls(cert=certificates.client, key=certificates.server))
        assert message.endswith(
            f"the key in {certificates.server!r} does not belong to the certificate in {certificates.client!r}"
        )

    def test_a_file_that_is_missing_is_named(self, certificates: Certificates) -> None:
        gone = str(certificates.folder / "gone.pem")
        assert f"{gone!r}: there is no such file" in refusal(client_context, Tls(cert=gone))
        assert f"{gone!r}: there is no such file" in refusal(client_context, Tls(cert=certificates.client, key=gone))
        assert gone in refusal(client_context, Tls(ca=gone))
        assert gone in refusal(client_context, Tls(crl=gone))

    def test_a_file_that_is_no_certificate_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.txt"
        path.write_text("not a certificate", encoding="utf-8")
        for tls in (Tls(ca=path), Tls(cert=path), Tls(crl=path)):
            message = refusal(client_context, tls)
            assert str(path) in message
            assert "not in PEM format, or corrupt" in message

    def test_a_renewed_file_is_read_at_the_next_connect(self, certificates: Certificates, tmp_path: Path) -> None:
        path = tmp_path / "ca.pem"
        subjects = []
        for authority in (certificates.ca, certificates.other_ca):
            path.write_bytes(Path(authority).read_bytes())
            subjects.append(client_context(Tls(ca=path)).get_ca_certs()[0]["subject"])
        assert subjects[0] != subjects[1]


class TestServer:
    def test_it_needs_a_certificate(self) -> None:
        assert "needs a certificate" in refusal(server_context, Tls())

    def test_clients_are_asked_where_an_authority_is_given(self, certificates: Certificates) -> None:
        assert server_context(certificates.broker_options()).verify_mode == ssl.CERT_NONE
        context = server_context(certificates.broker_options(ask_clients=True))
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert len(context.get_ca_certs()) == 1
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_RENEGOTIATION
        assert context.num_tickets == 0

    def test_what_is_for_clients_is_refused(self, certificates: Certificates) -> None:
        with pytest.warns(InsecureTlsWarning):
            skipping = Tls(cert=certificates.server, insecure_skip_hostname=True)
        for tls in (Tls(cert=certificates.server, server_name="b"), skipping):
            assert "are for clients" in refusal(server_context, tls)

    def test_a_context_for_clients_is_refused(self) -> None:
        assert "is one for clients" in refusal(server_context, ssl.create_default_context())
