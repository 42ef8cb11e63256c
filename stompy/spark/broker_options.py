"""The connection options of source and sink, and connecting with them.

The passcode is not an option, as options are pickled, sent to every executor and often printed. It is read from the
environment or a file by the process that connects: the driver for the source, each executor for the sink.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from stompy.connection.config import addresses_of
from stompy.connection.connecting import connect
from stompy.connection.connection import Connection
from stompy.dialects.brokers import DialectName
from stompy.errors import ConfigurationError
from stompy.link.settings import Limits, Timeouts
from stompy.spark import options as kinds
from stompy.spark.options import NO_SECRETS, option
from stompy.transport.tls.options import Tls
from stompy.world import os

_CONNECT_TIMEOUT = 10.0
"""Seconds for each address, until CONNECTED, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkBrokerOptions:
    """The connection options; picklable, and without secrets. Durations in seconds."""

    # fmt: off
    url: str = option(kinds.addresses, None, "the broker's address, several separated by commas, or a `failover:(...)` "
        "address; with the login, as in `stomp://login@host:61613`, and without a passcode", required=True)
    passcode_env: str | None = option(kinds.text, None, "the environment variable that holds the passcode, in the "
        "process that connects")
    passcode_file: str | None = option(kinds.text, None, "the file whose first line is the passcode, on the machine "
        "that connects")
    client_id: str | None = option(kinds.text, None, "the `client-id` of CONNECT, to which a durable subscription "
        "belongs")
    dialect: DialectName | None = option(kinds.choice(*get_args(DialectName)), None,
        "the kind of broker, if it does not report it")
    receipt_timeout: float = option(kinds.seconds, "30", "how long the broker may take to accept a frame, or to "
        "confirm it; to connect, 10 seconds at most")
    max_body_bytes: int = option(kinds.size, "128m", "the largest body that is accepted from the broker")
    tls_ca: str | None = option(kinds.text, None, "for `stomp+ssl://`: the file of authorities to trust instead of "
        "the system's")
    tls_cert: tuple[str, ...] | None = option(kinds.texts, None, "the file of the client's certificate, if the broker "
        "needs one; after a comma that of its key, if it is another one")
    # fmt: on

    def __post_init__(self) -> None:
        for address in addresses_of(self.url):
            if address.passcode is not None:
                raise ConfigurationError(f"option url must not contain a passcode ({address}): {NO_SECRETS}")
        if self.passcode_env is not None and self.passcode_file is not None:
            raise ConfigurationError("give passcodeEnv or passcodeFile, not both")
        if self.tls_cert is not None and len(self.tls_cert) > 2:
            raise ConfigurationError("option tlsCert must be one file, or two with a comma between")

    def connect(self, *, name: str) -> Connection:
        """Connect, in the process that has the passcode; raises as `stompy.connect`.

        It does not reconnect, as receivers and the sink must handle a lost connection themselves.

        Args:
            name: part of thread names.
        """
        timeout = self.receipt_timeout
        return connect(
            self.url,
            passcode=self.passcode(),
            client_id=self.client_id,
            dialect=self.dialect,
            timeouts=Timeouts(connect=min(_CONNECT_TIMEOUT, timeout), send=timeout, receipt=timeout),
            limits=Limits(max_body=self.max_body_bytes),
            reconnect=False,
            name=name,
            tls=self._tls(),
        )

    def passcode(self) -> str | None:
        """Return the passcode, or `None` if no option names its place.

        Raises:
            ConfigurationError: the environment variable or the file does not exist or cannot be read.
        """
        if self.passcode_env is not None:
            found = os.environ.get(self.passcode_env)
            if found is None:
                raise ConfigurationError(
                    f"option passcodeEnv: there is no environment variable {self.passcode_env!r} in the process that "
                    "connects. For the source that is the driver's Python, for the sink an executor's "
                    "(spark.executorEnv.NAME)"
                )
            return found
        if self.passcode_file is None:
            return None
        try:
            with open(self.passcode_file, encoding="utf-8") as file:
                return file.readline().removesuffix("\n")
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            raise ConfigurationError(f"option passcodeFile: {self.passcode_file!r} cannot be read: {why}") from None

    def _tls(self) -> Tls | None:
        """Return the TLS settings, or `None` if no option sets them."""
        if self.tls_ca is None and self.tls_cert is None:
            return None
        cert, key, *_ = (*map(Path, self.tls_cert or ()), None, None)
        return Tls(ca=None if self.tls_ca is None else Path(self.tls_ca), cert=cert, key=key)
