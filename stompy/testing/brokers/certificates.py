"""An authority made for a test, and the certificates of a broker and of its clients."""

from __future__ import annotations

import ssl
import weakref
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from stompy.errors import ConfigurationError
from stompy.forks import Owner
from stompy.world import shutil, tempfile

if TYPE_CHECKING:
    import trustme
    from cryptography.hazmat.primitives.serialization import KeySerializationEncryption

STORE_PASSWORD = "stompy-test"
"""Opens the broker's stores, which hold nothing worth hiding: they are made for one test."""

HOSTS = ("localhost", "127.0.0.1", "::1")


class Certificates:
    """An authority, a broker's certificate and a client's, all fresh; the files are there until `close`.

    Args:
        hosts: more names and addresses under which the broker is reached, beside the names of this machine.

    Attributes:
        ca_file: the authority's certificate (PEM), which a client trusts.
        client_cert: the client's certificate, PEM.
        client_key: its private key, PEM.
        broker_file: the broker's certificate and private key, PEM.

    Raises:
        ConfigurationError: the packages of the extra `testing` are not installed.
    """

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        try:
            import trustme
        except ImportError as error:
            raise ConfigurationError(f"TLS needs stompy-client[testing] to be installed: {error}") from error
        self._authority = trustme.CA()
        self._broker = self._authority.issue_cert(*dict.fromkeys((*HOSTS, *hosts)))
        client = self._authority.issue_cert("client@stompy.test", common_name="client")
        # Not a `TemporaryDirectory`, which a forked child would remove when it exits.
        self._folder = tempfile.mkdtemp(prefix="stompy-tls-")
        self._remove = weakref.finalize(self, _remove, self._folder, Owner("folder"))
        self.ca_file = self._write("ca.pem", self.ca_pem)
        self.client_cert = self._write("client.pem", _chain(client))
        self.client_key = self._write("client.key", client.private_key_pem.bytes())
        self.broker_file = self._write("broker.pem", self.broker_pem + self.broker_key)

    @property
    def ca_pem(self) -> bytes:
        """The authority's certificate."""
        return self._authority.cert_pem.bytes()

    @property
    def broker_pem(self) -> bytes:
        """The broker's certificate."""
        return _chain(self._broker)

    @property
    def broker_key(self) -> bytes:
        """The broker's private key, PEM."""
        return self._broker.private_key_pem.bytes()

    def key_store(self) -> bytes:
        """Return the broker's certificate and key as PKCS#12, as Java reads them."""
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import load_pem_private_key, pkcs12

        key = load_pem_private_key(self.broker_key, password=None)
        certificates = x509.load_pem_x509_certificates(self.broker_pem)
        # The two stores of a broker share a password and a type; the key's own type is one that PKCS#12 holds.
        return pkcs12.serialize_key_and_certificates(
            b"broker",
            key,  # type: ignore[arg-type]
            certificates[0],
            certificates[1:] or None,
            _encryption(),
        )

    def trust_store(self) -> bytes:
        """Return the authority's certificate as PKCS#12; Java trusts only entries that are marked as trusted."""
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import pkcs12

        authority = x509.load_pem_x509_certificate(self.ca_pem)
        return pkcs12.serialize_java_truststore([pkcs12.PKCS12Certificate(authority, b"authority")], _encryption())

    def client_context(self) -> ssl.SSLContext:
        """Return a context that trusts the authority, checks no host name, and has the client's certificate."""
        context = ssl.create_default_context(cafile=self.ca_file)
        context.check_hostname = False
        context.load_cert_chain(self.client_cert, self.client_key)
        return context

    def close(self) -> None:
        """Remove the files. Idempotent."""
        self._remove()

    def __enter__(self) -> Certificates:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, name: str, content: bytes) -> str:
        path = Path(self._folder, name)
        path.write_bytes(content)
        path.chmod(0o600)
        return str(path)


def _remove(folder: str, owner: Owner) -> None:
    if not owner.forked:
        shutil.rmtree(folder, ignore_errors=True)


def _chain(certificate: trustme.LeafCert) -> bytes:
    return b"".join(blob.bytes() for blob in certificate.cert_chain_pems)


def _encryption() -> KeySerializationEncryption:
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption

    return BestAvailableEncryption(STORE_PASSWORD.encode())
