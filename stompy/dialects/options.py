"""Options of send and subscribe beyond the specification, independent of the broker."""

from __future__ import annotations

from dataclasses import dataclass, fields

from stompy.errors import ConfigurationError

_LONGEST = 1e9
"""Seconds, about thirty years: a larger number is a point in time, passed by mistake."""


@dataclass(frozen=True, slots=True)
class SendOptions:
    """Options of one message; `None` leaves the choice to the broker.

    Attributes:
        persistent: whether the message survives a restart of the broker.
        priority: 0 to 9.
        expires: the lifetime in seconds.
        delay: the delay of the delivery in seconds.
        group: the message group; the messages of a group go to one consumer, in order.
        dedupe_id: the id by which the broker detects and drops duplicates.

    Raises:
        ConfigurationError: a value of the wrong kind or out of range.
    """

    persistent: bool | None = None
    priority: int | None = None
    expires: float | None = None
    delay: float | None = None
    group: str | None = None
    dedupe_id: str | None = None

    def __post_init__(self) -> None:
        if self.persistent is not None and not isinstance(self.persistent, bool):
            raise ConfigurationError(f"persistent must be True, False or None, not {self.persistent!r}")
        if self.priority is not None and not (_is_count(self.priority) and 0 <= self.priority <= 9):
            raise ConfigurationError(f"priority must be a whole number from 0 to 9, not {self.priority!r}")
        for name in ("expires", "delay"):
            seconds = getattr(self, name)
            if seconds is not None and not (_is_number(seconds) and 0 < seconds < _LONGEST):
                raise ConfigurationError(f"{name} must be a positive number of seconds, not {seconds!r}")
        _check_texts(self, "group", "dedupe_id")

    def asked(self) -> dict[str, object]:
        """Return the options that were given."""
        return {item.name: value for item in fields(self) if (value := getattr(self, item.name)) is not None}


@dataclass(frozen=True, slots=True)
class SubscribeOptions:
    """Options of one subscription.

    Attributes:
        prefetch: the maximum number of unacknowledged messages that the broker sends.
        selector: the condition that the headers of a message must meet to be delivered.
        durable: the name of a durable subscription, for which the broker keeps messages while the client is offline.
        browse: whether to read the messages of a queue without consuming them.
        exclusive: whether only one consumer of the queue at a time gets messages.

    Raises:
        ConfigurationError: a value of the wrong kind or out of range.
    """

    prefetch: int | None = None
    selector: str | None = None
    durable: str | None = None
    browse: bool = False
    exclusive: bool = False

    def __post_init__(self) -> None:
        if self.prefetch is not None and not (_is_count(self.prefetch) and self.prefetch >= 1):
            raise ConfigurationError(f"prefetch must be a whole number of 1 or more, not {self.prefetch!r}")
        _check_texts(self, "selector", "durable")
        for name in ("browse", "exclusive"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigurationError(f"{name} must be True or False, not {getattr(self, name)!r}")
        if self.browse and (self.durable is not None or self.exclusive):
            raise ConfigurationError("browse reads a queue: it can be neither durable nor exclusive")

    def asked(self) -> dict[str, object]:
        """Return the options that were given."""
        every = ((item.name, getattr(self, item.name)) for item in fields(self))
        return {name: value for name, value in every if value is not None and value is not False}


NOTHING_ASKED = (None,) * 6
"""The values of `SendOptions` if no option is given, as for most messages."""


def _check_texts(options: object, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and not (isinstance(value, str) and value):
            raise ConfigurationError(f"{name} must be text of at least one character, not {value!r}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
