"""ActiveMQ's `failover:` addresses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from stompy.backoff import Backoff
from stompy.connection.reconnect import Order, Reconnect
from stompy.errors import ConfigurationError

_FORM = re.compile(r"failover:(?://)?\((?P<inner>[^()]*)\)(?:\?(?P<options>.*))?")
_NUMBER = re.compile(r"-?[0-9]{1,9}")

_FAILOVER_OPTIONS = {
    "randomize": "true",
    "priorityBackup": "false",
    "initialReconnectDelay": "10",
    "maxReconnectDelay": "30000",
    "maxReconnectAttempts": "-1",
}
"""The options of a failover address, and their defaults, which are those of ActiveMQ."""


@dataclass(frozen=True, slots=True)
class Failover:
    """A parsed failover address.

    Attributes:
        urls: the brokers, comma-separated. Not in `repr`, as it may contain passcodes.
        order: of the brokers in one pass.
        policy: for replacing a lost link, or `None`.
    """

    urls: str = field(repr=False)
    order: Order
    policy: Reconnect | None


def parse_failover(url: str) -> Failover:
    """Parse a failover address.

    Known options: `randomize`, `priorityBackup` (the first broker is tried first in each pass; unlike ActiveMQ's
    client, stompy never abandons a working connection to fail back), `initialReconnectDelay` and `maxReconnectDelay`
    (milliseconds), `maxReconnectAttempts` (-1 for no limit, 0 for none).

    Raises:
        ConfigurationError: the address is malformed or has an unknown option; the error does not show the address, as
            it may contain a passcode.
    """
    match = _FORM.fullmatch(url)
    if match is None:
        raise ConfigurationError(
            "a failover address has the form failover:(stomp://a:61613,stomp://b:61613)?option=value"
        )
    options = dict(parse_qsl(match["options"] or "", keep_blank_values=True))
    for name in options.keys() - _FAILOVER_OPTIONS:
        known = ", ".join(sorted(_FAILOVER_OPTIONS))
        raise ConfigurationError(f"unknown failover option {name!r}: stompy supports {known}")
    options = {**_FAILOVER_OPTIONS, **options}
    randomize, priority = _flag(options, "randomize"), _flag(options, "priorityBackup")
    backoff = Backoff(
        first=_number(options, "initialReconnectDelay", least=1) / 1000,
        longest=_number(options, "maxReconnectDelay", least=1) / 1000,
    )
    attempts = _number(options, "maxReconnectAttempts", least=-1)
    policy = Reconnect(attempts=None if attempts < 0 else attempts, backoff=backoff) if attempts else None
    return Failover(match["inner"], "given" if not randomize else "priority" if priority else "random", policy)


def _flag(options: Mapping[str, str], name: str) -> bool:
    if options[name] not in ("true", "false"):
        raise ConfigurationError(f"failover option {name} must be true or false, not {options[name]!r}")
    return options[name] == "true"


def _number(options: Mapping[str, str], name: str, *, least: int) -> int:
    value = options[name]
    if not _NUMBER.fullmatch(value) or int(value) < least:
        raise ConfigurationError(f"failover option {name} must be a whole number of {least} or more, not {value!r}")
    return int(value)
