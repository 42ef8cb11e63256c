"""Arguments: `DEFAULT` for one that is configured elsewhere, as `None` means "no limit"; and unknown names."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from typing import Final, TypeVar

from stompy.errors import ConfigurationError
from stompy.printable import did_you_mean

Value = TypeVar("Value")


class Default(enum.Enum):
    """The type of `DEFAULT`."""

    DEFAULT = "DEFAULT"

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT: Final = Default.DEFAULT


def given(value: Value | Default, default: Value) -> Value:
    """Return `value`, or `default` in place of `DEFAULT`."""
    return default if isinstance(value, Default) else value


_SAID_OTHERWISE = {
    "username": "login",
    "user": "login",
    "password": "passcode",
    "ssl": "tls",
    "ssl_context": "tls",
    "use_ssl": "tls",
    "virtual_host": "vhost",
    "heartbeats": "heartbeat",
    "broker_url": "url",
    "token": "passcode",
    "threads": "concurrency",
    "workers": "concurrency",
    "retries": "attempts",
    "max_retries": "attempts",
    "timeout": "time_limit",
    "ttl": "expires",
}
"""Names of options in other libraries, and here."""

_INSTEAD = {
    "inbox": "limits=Limits(max_inbox_messages=...)",
    "retry_delay": "backoff=Backoff(first=..., longest=...)",
    "retry_delays": "backoff=Backoff(first=..., longest=...)",
    "timeout": "timeouts=Timeouts(connect=...)",
    "reconnect_attempts_max": "reconnect=Reconnect(attempts=...)",
    "keepalive": "tcp=TcpOptions(keepalive=...)",
}
"""Options of other libraries and of the past that are a part of another one here."""

_IN_URL = frozenset(("host", "hostname", "port", "host_and_ports", "broker_host_and_ports", "hosts"))
"""Options of other libraries that are a part of the address here."""


def check_names(owner: str, given: Iterable[str], known: Collection[str], others: Iterable[str] = ()) -> None:
    """Check that the options that were given are known.

    Args:
        owner: whose options they are, for the error message.
        given: the names.
        known: the names that there are.
        others: names to suggest too.

    Raises:
        ConfigurationError: one is unknown; the error suggests the nearest name.
    """
    for name in given:
        if name not in known:
            names = {*known, *others}
            hint = did_you_mean(_SAID_OTHERWISE.get(name, name), names)
            if name in _IN_URL and "url" in names:
                hint = "; host and port are part of the address, such as 'stomp://localhost:61613'"
            if name in _INSTEAD and _INSTEAD[name].partition("=")[0] in names:
                hint = f"; write {_INSTEAD[name]}"
            raise ConfigurationError(f"{owner} has no option {name!r}" + hint)
