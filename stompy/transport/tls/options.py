"""What TLS is to look like, as a value that travels; `tls_context.py` makes a context of it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Union

from stompy.errors import ConfigurationError, InsecureTls
from stompy.secret import Secret, check_text, hidden

TlsVersion = Literal["1.2", "1.3"]
Path = Union[str, "os.PathLike[str]"]

_VERSIONS = ("1.2", "1.3")


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS for a client, or for the embedded broker; all files are PEM, and are read anew at each connect.

    Attributes:
        ca: whom to trust instead of the system's authorities: a file of certificates, or a directory hashed by OpenSSL.
            For a broker: whose certificates clients must show; `None` asks them for none.
        cert: our certificate, followed by those between it and its authority. A broker needs one.
        key: the key of `cert`; `None` where it stands in the same file.
        password: of an encrypted key, or what returns it. Text is kept as a `Secret`, never shown; a pickle holds it.
        crl: revocation lists of the authority; a certificate on them is refused, and so is one without a list.
        server_name: the name to ask for and to find in the broker's certificate, instead of the address's host.
        minimum_version: the oldest version of TLS to speak.
        maximum_version: the newest one; `None` for no bound.
        insecure_skip_verification: take any certificate, of anybody. Whoever is on the way can read and change
            everything, credentials first. A warning says so, and the log at each connect.
        insecure_skip_hostname: take a good certificate of any host; `server_name` is nearly always what you want.

    Raises:
        ConfigurationError: a combination makes no sense.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    password: Secret[str] | str | Callable[[], str] | None = field(default=None, repr=False)
    crl: Path | None = None
    server_name: str | None = None
    minimum_version: TlsVersion = "1.2"
    maximum_version: TlsVersion | None = None
    insecure_skip_verification: bool = False
    insecure_skip_hostname: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "password", hidden(self.password))
        check_text("password", self.password)
        for name in ("ca", "cert", "key", "crl"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, (str, os.PathLike)) or not os.fspath(value)):
                raise ConfigurationError(f"{name} must be the path of a file, not {type(value).__name__}")
        if self.key is not None and self.cert is None:
            raise ConfigurationError("a TLS key needs its certificate: give cert too")
        if self.minimum_version not in _VERSIONS or self.maximum_version not in (None, *_VERSIONS):
            raise ConfigurationError("a version of TLS is written '1.2' or '1.3'")
        if self.maximum_version is not None and self.maximum_version < self.minimum_version:
            raise ConfigurationError("the newest version of TLS must not be older than the oldest one")
        if self.insecure_skip_verification and (self.ca is not None or self.crl is not None):
            raise ConfigurationError("ca and crl mean nothing with insecure_skip_verification")
        if self.insecure_skip_verification or self.insecure_skip_hostname:
            what = "the broker's certificate" if self.insecure_skip_verification else "the host in its certificate"
            # Two steps up: whoever made this value.
            warnings.warn(f"TLS does not check {what}: anybody can pose as the broker", InsecureTls, stacklevel=3)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the password: whoever pickles this wants to connect elsewhere."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        if isinstance(self.password, Secret):
            values["password"] = self.password.reveal()
        return _restored, (values,)


def _restored(values: dict[str, Any]) -> Tls:
    tls = object.__new__(Tls)  # it was judged, and warned of, where it was made
    for name, value in values.items():
        object.__setattr__(tls, name, hidden(value) if name == "password" else value)
    return tls
