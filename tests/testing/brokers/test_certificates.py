"""The certificates fit each other, and their files go."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from stompy.testing.brokers.certificates import STORE_PASSWORD, Certificates

pytest.importorskip("trustme")
from cryptography.hazmat.primitives.serialization import pkcs12


@pytest.fixture
def certificates() -> Iterator[Certificates]:
    made = Certificates(hosts=["broker.example"])
    yield made
    made.close()


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, *, host: str) -> None:
    """Carry the handshake out in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(end)
    assert not waiting, "the handshake did not end"


def server_context(certificates: Certificates, folder: Path) -> ssl.SSLContext:
    chain = folder / "broker.pem"
    chain.write_bytes(certificates.broker_pem + certificates.broker_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificates.ca_file)
    return context


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "broker.example"])
def test_client_and_broker_trust_each_other_under_every_name(
    certificates: Certificates, tmp_path: Path, host: str
) -> None:
    client = ssl.create_default_context(cafile=certificates.ca_file)
    client.load_cert_chain(certificates.client_cert, certificates.client_key)
    shake_hands(client, server_context(certificates, tmp_path), host=host)


def test_another_authority_is_not_trusted(certificates: Certificates, tmp_path: Path) -> None:
    stranger = Certificates()
    client = ssl.create_default_context(cafile=stranger.ca_file)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(client, server_context(certificates, tmp_path), host="localhost")
    stranger.close()


def test_the_key_store_holds_the_brokers_key_and_certificate(certificates: Certificates) -> None:
    key, certificate, _ = pkcs12.load_key_and_certificates(certificates.key_store(), STORE_PASSWORD.encode())
    assert key is not None
    assert certificate is not None
    assert key.public_key() == certificate.public_key()


def test_the_trust_store_holds_the_authority_and_no_key(certificates: Certificates) -> None:
    store = pkcs12.load_pkcs12(certificates.trust_store(), STORE_PASSWORD.encode())
    assert store.key is None
    assert [one.friendly_name for one in store.additional_certs] == [b"authority"]


def test_private_keys_are_for_their_owner_alone_and_go_with_the_rest(certificates: Certificates) -> None:
    key = Path(certificates.client_key)
    assert key.stat().st_mode & 0o077 == 0
    certificates.close()
    certificates.close()
    assert not key.exists()
    assert not Path(certificates.ca_file).exists()
