"""Make `ssl.SSLContext`s of `Tls` settings; imported only where TLS is used, as importing `ssl` takes time."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path as FilePath

from stompy.errors import ConfigurationError
from stompy.secret import Secret
from stompy.transport.diagnosis import describe_os_error
from stompy.transport.tls.options import Tls
from stompy.world import os

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def client_context(
    tls: Tls | ssl.SSLContext, *, make: Callable[..., ssl.SSLContext] = ssl.create_default_context
) -> ssl.SSLContext:
    """Return the context of a client.

    Args:
        tls: the settings, or the context itself.
        make: makes a context, as `ssl.create_default_context` does.

    Raises:
        ConfigurationError: a file cannot be read, or has the wrong content; or the context is one for servers.
    """
    if isinstance(tls, ssl.SSLContext):
        if tls.protocol == ssl.PROTOCOL_TLS_SERVER:
            raise ConfigurationError("this SSLContext is one for servers; a client needs ssl.create_default_context()")
        return _without_renegotiation(tls)
    context = _default_context(ssl.Purpose.SERVER_AUTH, tls, make)
    if tls.insecure_skip_verification or tls.insecure_skip_hostname:
        context.check_hostname = False
    if tls.insecure_skip_verification:
        context.verify_mode = ssl.CERT_NONE
    return _configured(context, tls)


def server_context(tls: Tls | ssl.SSLContext) -> ssl.SSLContext:
    """Return the context of a listener.

    Raises:
        ConfigurationError: a file cannot be read, or has the wrong content; there is no certificate; or the settings or
            the context are for clients.
    """
    if isinstance(tls, ssl.SSLContext):
        if tls.protocol == ssl.PROTOCOL_TLS_CLIENT:
            raise ConfigurationError("this SSLContext is one for clients; a broker needs one for servers")
        return _without_renegotiation(tls)
    if tls.cert is None:
        raise ConfigurationError("a broker with TLS needs a certificate: Tls(cert=..., key=...)")
    if tls.server_name is not None or tls.insecure_skip_verification or tls.insecure_skip_hostname:
        raise ConfigurationError("server_name and insecure_... are for clients, not for a broker")
    context = _default_context(ssl.Purpose.CLIENT_AUTH, tls, ssl.create_default_context)
    context.num_tickets = (
        0  # clients do not resume sessions, and closing with unread tickets would reset the connection
    )
    if tls.ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return _configured(context, tls)


def _without_renegotiation(context: ssl.SSLContext) -> ssl.SSLContext:
    # With a renegotiation (TLS 1.2), reading would have to wait for writing.
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _configured(context: ssl.SSLContext, tls: Tls) -> ssl.SSLContext:
    context.minimum_version = _VERSIONS[tls.minimum_version]
    if tls.maximum_version is not None:
        context.maximum_version = _VERSIONS[tls.maximum_version]
    if tls.cert is not None:
        _load_certificate(context, tls)
    if tls.crl is not None:
        _load_revocation_lists(context, tls.crl)
    return _without_renegotiation(context)


def _default_context(purpose: ssl.Purpose, tls: Tls, make: Callable[..., ssl.SSLContext]) -> ssl.SSLContext:
    if tls.ca is None:
        return make(purpose)  # the system's authorities, for a client
    path = os.fspath(tls.ca)
    try:
        return make(purpose, **{"capath" if FilePath(path).is_dir() else "cafile": path})
    except OSError as error:
        raise _unusable("the certificates of authorities in", path, error) from error


def _load_revocation_lists(context: ssl.SSLContext, crl: str | os.PathLike[str]) -> None:
    path = FilePath(crl)
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise _unusable("the revocation lists in", path, error) from error
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load_certificate(context: ssl.SSLContext, tls: Tls) -> None:
    assert tls.cert is not None
    cert, key = FilePath(tls.cert), FilePath(tls.key if tls.key is not None else tls.cert)
    asked = False

    def password() -> str:
        # Without this function, OpenSSL would prompt for a password on the terminal.
        nonlocal asked
        asked = True
        if isinstance(tls.password, Secret):
            return tls.password.reveal()
        return tls.password() if callable(tls.password) else ""

    for path in (cert, key):
        # OpenSSL does not tell which of the two files it cannot read.
        if not os.access(path, os.R_OK) or not path.is_file():
            why = "it cannot be read" if path.exists() else "there is no such file"
            raise ConfigurationError(f"cannot use the certificate or key in {str(path)!r}: {why}")
    try:
        context.load_cert_chain(cert, key, password)
    except OSError as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            why = f"the key in {str(key)!r} does not belong to the certificate in {str(cert)!r}"
        elif asked:
            why = f"the key in {str(key)!r} is encrypted, and " + (
                "no password is set" if tls.password is None else "the password is wrong"
            )
        else:
            raise _unusable("the certificate and key in", cert if key == cert else f"{cert}, {key}", error) from error
        raise ConfigurationError(f"cannot use a certificate for TLS: {why}") from error


def _unusable(what: str, path: str | os.PathLike[str], error: OSError) -> ConfigurationError:
    why = "not in PEM format, or corrupt" if isinstance(error, ssl.SSLError) else describe_os_error(error)
    return ConfigurationError(f"cannot use {what} {str(path)!r}: {why}")
