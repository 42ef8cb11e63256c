"""Certificates for tests: an authority of the moment, and everything that can be wrong with what it signs."""

from __future__ import annotations

import datetime
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from stompy.transport.tls.options import Tls, TlsVersion

NAMES = ("localhost", "127.0.0.1", "::1")


def _moment(days: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)


class Certificates:
    """Writes PEM files into a folder, each when it is first asked for.

    Args:
        folder: where to; it exists.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._authority = trustme.CA(organization_name="Good Authority")
        self._other = trustme.CA(organization_name="Unknown Authority")

    @property
    def ca(self) -> str:
        """The authority to trust."""
        return self._pem("ca", self._authority.cert_pem.bytes())

    @property
    def other_ca(self) -> str:
        """An authority that signed nothing of importance."""
        return self._pem("other-ca", self._other.cert_pem.bytes())

    @property
    def server(self) -> str:
        """Certificate and key of a good server."""
        return self._issue("server", self._authority, *NAMES)

    @property
    def client(self) -> str:
        """Certificate and key of a good client."""
        return self._issue("client", self._authority, "client@example.org")

    @property
    def unknown_client(self) -> str:
        """Certificate and key of a client from an unknown authority."""
        return self._issue("unknown-client", self._other, "client@example.org")

    @property
    def of_unknown_authority(self) -> str:
        """A server's, signed by the other authority."""
        return self._issue("of-unknown-authority", self._other, *NAMES)

    @property
    def of_unknown_chain(self) -> str:
        """A server's certificate, signed by an intermediate of the other authority."""
        return self._issue("of-unknown-chain", self._other.create_child_ca(), *NAMES)

    @property
    def of_other_host(self) -> str:
        """A server's, for another host."""
        return self._issue("of-other-host", self._authority, "other.example.org")

    @property
    def expired(self) -> str:
        """A server's, which was good until yesterday."""
        return self._issue("expired", self._authority, *NAMES, first=-10, last=-1)

    @property
    def not_yet(self) -> str:
        """A server's, which is good from tomorrow on."""
        return self._issue("not-yet", self._authority, *NAMES, first=1, last=10)

    @property
    def expired_client(self) -> str:
        """A client's, which was good until yesterday."""
        return self._issue("expired-client", self._authority, "client@example.org", first=-10, last=-1)

    @property
    def with_intermediate(self) -> str:
        """A server's certificate, signed by an intermediate of the authority, with the whole chain."""
        return self._issue("with-intermediate", self._authority.create_child_ca(), *NAMES)

    @property
    def without_intermediate(self) -> str:
        """The same, but the chain is kept back."""
        leaf = self._authority.create_child_ca().issue_cert(*NAMES)
        return self._pem("without-intermediate", leaf.private_key_pem.bytes() + leaf.cert_chain_pems[0].bytes())

    @property
    def self_signed(self) -> str:
        """A self-signed certificate of a server."""
        path = self.folder / "self-signed.pem"
        if not path.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Myself")])
            certificate = (
                x509.CertificateBuilder()
                .subject_name(name)
                .issuer_name(name)
                .public_key(key.public_key())
                .serial_number(x509.random_serial_number())
                .not_valid_before(_moment(-1))
                .not_valid_after(_moment(1))
                .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
                .sign(key, hashes.SHA256())
            )
            path.write_bytes(_key_pem(key) + certificate.public_bytes(serialization.Encoding.PEM))
        return str(path)

    def encrypted(self, password: str) -> str:
        """Return the good client's certificate with its key encrypted."""
        leaf = self._authority.issue_cert("client@example.org")
        key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
        data = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password.encode()),
        )
        return self._pem(f"encrypted-{password}", data + leaf.cert_chain_pems[0].bytes())

    def crl(self, *revoked: str) -> str:
        """Return the authority's revocation list with the certificates in these files on it."""
        issuer = x509.load_pem_x509_certificate(self._authority.cert_pem.bytes())
        key = serialization.load_pem_private_key(self._authority.private_key_pem.bytes(), None)
        builder = x509.CertificateRevocationListBuilder()
        builder = builder.issuer_name(issuer.subject).last_update(_moment(-1)).next_update(_moment(1))
        builder = builder.add_extension(x509.CRLNumber(1), critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()),  # type: ignore[arg-type]
            critical=False,
        )
        for path in revoked:
            serial = x509.load_pem_x509_certificate(Path(path).read_bytes()).serial_number
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(_moment(-1)).build()
            builder = builder.add_revoked_certificate(entry)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        data = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        return self._pem(f"crl-{len(revoked)}", data)

    def broker_options(self, *, ask_clients: bool = False, version: TlsVersion | None = None) -> Tls:
        """Return TLS of a good broker."""
        return Tls(
            cert=self.server,
            ca=self.ca if ask_clients else None,
            minimum_version=version or "1.2",
            maximum_version=version,
        )

    def client_options(self, *, show: bool = False) -> Tls:
        """Return TLS of a good client, which may show its certificate."""
        return Tls(ca=self.ca, cert=self.client if show else None)

    def _issue(self, name: str, authority: trustme.CA, *names: str, first: float = -1, last: float = 1) -> str:
        path = self.folder / f"{name}.pem"
        if not path.exists():
            leaf = authority.issue_cert(*names, not_before=_moment(first), not_after=_moment(last))
            leaf.private_key_and_cert_chain_pem.write_to_path(path)
        return str(path)

    def _pem(self, name: str, data: bytes) -> str:
        path = self.folder / f"{name}.pem"
        if not path.exists():
            path.write_bytes(data)
        return str(path)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
