"""ActiveMQ's `failover:(a,b)?option=value` addresses: several brokers and how to reconnect to them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl

from stompy.backoff import Backoff
from stompy.connection.reconnect import Order, Reconnect
from stompy.errors import ConfigurationError

_FORM = re.compile(r"failover:(?://)?\((?P<inner>[^()]*)\)(?:\?(?P<options>.*))?")
_NUMBER = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Failover:
    """A parsed failover address.

    Attributes:
        urls: the brokers, comma-separated. Not in `repr`, as it may contain passcodes.
        randomize: try them in random order, which is ActiveMQ's default.
        priority: but try the first one first.
        policy: for replacing a lost link, or `None`.
    """

    urls: str = field(repr=False)
    randomize: bool = True
    priority: bool = False
    policy: Reconnect | None = field(default_factory=lambda: Reconnect(backoff=Backoff(first=0.01)))

    @property
    def order(self) -> Order:
        """The order of the brokers in one pass."""
        if not self.randomize:
            return "given"
        return "priority" if self.priority else "random"


def is_failover(url: object) -> bool:
    """Whether `url` is a failover address."""
    return isinstance(url, str) and url.startswith("failover:")


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
    parsed = Failover(match["inner"])
    for name, value in parse_qsl(match["options"] or "", keep_blank_values=True):
        if name not in _OPTIONS:
            raise ConfigurationError(f"unknown failover option {name!r}: stompy supports {', '.join(sorted(_OPTIONS))}")
        parsed = _OPTIONS[name](parsed, name, value)
    return parsed


def _randomize(parsed: Failover, name: str, value: str) -> Failover:
    return replace(parsed, randomize=_flag(name, value))


def _priority(parsed: Failover, name: str, value: str) -> Failover:
    return replace(parsed, priority=_flag(name, value))


def _first(parsed: Failover, name: str, value: str) -> Failover:
    return _with_backoff(parsed, first=_number(name, value, least=1) / 1000)


def _longest(parsed: Failover, name: str, value: str) -> Failover:
    return _with_backoff(parsed, longest=_number(name, value, least=1) / 1000)


def _attempts(parsed: Failover, name: str, value: str) -> Failover:
    attempts = _number(name, value, least=-1)
    if attempts == 0:
        return replace(parsed, policy=None)
    if parsed.policy is None:
        return parsed
    return replace(parsed, policy=replace(parsed.policy, attempts=None if attempts < 0 else attempts))


def _with_backoff(parsed: Failover, **changes: float) -> Failover:
    if parsed.policy is None:
        return parsed
    return replace(parsed, policy=replace(parsed.policy, backoff=replace(parsed.policy.backoff, **changes)))


def _flag(name: str, value: str) -> bool:
    if value not in ("true", "false"):
        raise ConfigurationError(f"failover option {name} must be true or false, not {value!r}")
    return value == "true"


def _number(name: str, value: str, *, least: int) -> int:
    if not _NUMBER.fullmatch(value) or int(value) < least:
        raise ConfigurationError(f"failover option {name} must be a whole number of {least} or more, not {value!r}")
    return int(value)


_OPTIONS: dict[str, Callable[[Failover, str, str], Failover]] = {
    "randomize": _randomize,
    "priorityBackup": _priority,
    "initialReconnectDelay": _first,
    "maxReconnectDelay": _longest,
    "maxReconnectAttempts": _attempts,
}
