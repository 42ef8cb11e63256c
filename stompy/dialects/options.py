"""What a caller may ask of a broker beyond the specification, in words that belong to no broker."""

from __future__ import annotations

from dataclasses import dataclass, fields

from stompy.errors import ConfigurationError

_LONGEST = 1e9
"""Seconds, about thirty years: more is a moment that was taken for a duration."""


@dataclass(frozen=True, slots=True)
class SendOptions:
    """Options of one message; `None` leaves a thing to the broker.

    Attributes:
        persistent: whether the message survives a restart of the broker.
        priority: 0 to 9.
        expires: seconds to live.
        delay: seconds until it is delivered.
        group: messages of one group go to one consumer, in order.
        dedupe_id: the broker drops a message whose id it has seen.

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
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) is not None}


@dataclass(frozen=True, slots=True)
class SubscribeOptions:
    """Options of one subscription.

    Attributes:
        prefetch: how many unacknowledged messages the broker may send ahead.
        selector: deliver only messages whose headers fulfil this condition.
        durable: the name under which the broker keeps the messages of a topic while nobody is subscribed.
        browse: look at the messages of a queue without taking them.
        exclusive: of several consumers of the queue only one gets messages, until it is gone.

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
            raise ConfigurationError("browse looks at a queue: it can be neither durable nor exclusive")

    def asked(self) -> dict[str, object]:
        """Return the options that were given."""
        every = ((one.name, getattr(self, one.name)) for one in fields(self))
        return {name: value for name, value in every if value is not None and value is not False}


NOTHING_ASKED = (None,) * 6
"""The values of `SendOptions` where no option is given: those of most messages."""


def _check_texts(options: object, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and not (isinstance(value, str) and value):
            raise ConfigurationError(f"{name} must be text of at least one character, not {value!r}")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
