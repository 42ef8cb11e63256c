"""TLS settings as a value that can be pickled; `context.py` makes an `ssl.SSLContext` of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from stompy.arguments import check_fields
from stompy.errors import ConfigurationError, InsecureTlsWarning
from stompy.secret import Secret, as_secret, check_text
from stompy.world import os

TlsVersion = Literal["1.2", "1.3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """TLS settings of a client, or of the embedded broker; all files are PEM, and are read for each connection.

    Attributes:
        ca: the trusted authorities instead of the system's: a file of certificates, or a directory hashed by OpenSSL.
            For a broker: the authorities of client certificates, which are then required; `None` requires none.
        cert: the own certificate, followed by intermediate certificates. Required for a broker.
        key: the private key of `cert`; `None` means that it is in the same file.
        password: the password of an encrypted key, or a function that returns it. Text is stored as a `Secret`; a
            pickle contains it.
        crl: revocation lists of the authorities; a certificate is rejected if it is on a list, or if its authority has
            none.
        server_name: the name for SNI and for the check of the certificate, instead of the host of the address.
        minimum_version: the oldest allowed version of TLS.
        maximum_version: the newest allowed version; `None` means no limit.
        insecure_skip_verification: whether to accept any certificate. An attacker in the network can then read and
            change everything, including credentials. Causes a warning, and a log record for each connection.
        insecure_skip_hostname: whether to accept a valid certificate of another host; usually `server_name` is the
            better choice.

    Raises:
        ConfigurationError: a value is not valid, or a combination has no meaning.
    """

    ca: str | os.PathLike[str] | None = None
    cert: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    password: Secret[str] | str | Callable[[], str] | None = field(default=None, repr=False)
    crl: str | os.PathLike[str] | None = None
    server_name: str | None = None
    minimum_version: TlsVersion = "1.2"
    maximum_version: TlsVersion | None = None
    insecure_skip_verification: bool = False
    insecure_skip_hostname: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "password", as_secret(self.password))
        check_text("password", self.password)
        check_fields(self)
        for name in ("ca", "cert", "key", "crl"):
            value = getattr(self, name)
            if value is not None and not os.fspath(value):
                raise ConfigurationError(f"{name} must be the path of a file, and is empty")
        if self.key is not None and self.cert is None:
            raise ConfigurationError("a TLS key needs its certificate: set cert too")
        if self.maximum_version is not None and self.maximum_version < self.minimum_version:
            raise ConfigurationError("maximum_version must not be older than minimum_version")
        if self.insecure_skip_verification and (self.ca is not None or self.crl is not None):
            raise ConfigurationError("ca and crl have no effect with insecure_skip_verification")
        if self.insecure_skip_verification or self.insecure_skip_hostname:
            what = "the broker's certificate" if self.insecure_skip_verification else "the host in its certificate"
            # Two frames up: the caller of the class.
            warnings.warn(
                f"TLS does not check {what}: an attacker in the network can impersonate it",
                InsecureTlsWarning,
                stacklevel=3,
            )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the password, which the process that unpickles it needs in order to connect."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        if isinstance(self.password, Secret):
            values["password"] = self.password.reveal()
        return _restored, (values,)


def _restored(values: dict[str, Any]) -> Tls:
    tls = object.__new__(Tls)  # without __post_init__: the values were checked, and the warning given, when it was made
    for name, value in values.items():
        object.__setattr__(tls, name, as_secret(value) if name == "password" else value)
    return tls
