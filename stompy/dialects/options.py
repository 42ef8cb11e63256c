"""Options of send and subscribe beyond the specification, independent of the broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from stompy.errors import ConfigurationError
from stompy.printable import did_you_mean
from stompy.values import Value, fields_of

_LONGEST = 1e9
"""Seconds, about thirty years: a larger number is a point in time, passed by mistake."""


class OtherSendOptions(TypedDict, total=False):
    """The options of a message beside its type and headers, which the calls that are made most often name as arguments.

    `None` is the same as not given. A broker that does not support an option is an error before anything is sent.
    """

    content_length: bool | None
    """Whether to add that header; by default the connection's setting."""
    persistent: bool | None
    """Whether the message survives a restart of the broker; by default the broker's choice."""
    priority: int | None
    """0 to 9."""
    expires: float | None
    """Seconds to live."""
    delay: float | None
    """Seconds until the broker delivers it."""
    group: str | None
    """Messages of a group go to one consumer, in order."""
    dedupe_id: str | None
    """The broker drops messages with an id it has seen."""


class SendOptions(OtherSendOptions, total=False):
    """The options of a message, keyword arguments of `Connection.send` and of every other call that sends one."""

    content_type: str | None
    """A MIME type; text is encoded with its charset. By default that of the body."""
    headers: Mapping[str, object] | None
    """Additional headers; values are `str`, `int` (decimal) or `bool` (`true`, `false`)."""


if TYPE_CHECKING:
    from dataclasses import dataclass

    # Editors on Jedi do not follow `Unpack`, but show what a function calls with its `**options`, and as its arguments
    # the fields of a dataclass. So each function that takes these options calls this one, where it costs nothing. Those
    # on Pyright find no docstring of an option that is also the name of a local variable there.
    _show_own = dataclass(SendOptions)
    _show_others = dataclass(OtherSendOptions)

    def show_send_options(**options: Any) -> None:
        """Take the options."""
        _show_own(**options)
        _show_others(**options)


class SendOption(NamedTuple):
    """One of `SendOptions`.

    Attributes:
        allowed: its values, for error messages.
        check: whether a value is one of them.
        feature: what a broker supports or does not, if brokers have headers of their own for it, which
            `Dialect.headers` names.
        varies: whether that header usually differs from message to message.
    """

    allowed: str
    check: Callable[[object], bool]
    feature: str = ""
    varies: bool = False


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_seconds(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < _LONGEST


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_priority(value: object) -> bool:
    return _is_count(value) and value in range(10)


_SECONDS = "a positive number of seconds"
_TEXT = "text of at least one character"

SEND_OPTIONS: Mapping[str, SendOption] = {
    "content_length": SendOption(allowed="True or False", check=_is_bool),
    "persistent": SendOption(allowed="True or False", check=_is_bool, feature="persistence per message"),
    "priority": SendOption(allowed="a whole number from 0 to 9", check=_is_priority, feature="priorities"),
    "expires": SendOption(allowed=_SECONDS, check=_is_seconds, feature="expiry", varies=True),
    "delay": SendOption(allowed=_SECONDS, check=_is_seconds, feature="delayed delivery"),
    "group": SendOption(allowed=_TEXT, check=_is_text, feature="message groups"),
    "dedupe_id": SendOption(allowed=_TEXT, check=_is_text, feature="duplicate detection", varies=True),
    "content_type": SendOption(allowed=_TEXT, check=_is_text),
    "headers": SendOption(allowed="a mapping", check=_is_mapping),
}
"""The one table of them; `CONTRIBUTING.md` says how to add one."""

BROKER_OPTIONS = {name: option for name, option in SEND_OPTIONS.items() if option.feature}
"""Those for which brokers have headers of their own."""

SUBSCRIBE_FEATURES: Mapping[str, str] = {
    "prefetch": "a prefetch limit in messages",
    "selector": "selectors",
    "durable": "durable subscriptions",
    "browse": "browsing",
    "exclusive": "exclusive consumers",
}
"""What a broker supports or does not, for each of `SubscribeOptions`."""


def check_send_options(options: Mapping[str, object]) -> None:
    """Check the names and values of options of a message, but not the contents of `headers`.

    Raises:
        ConfigurationError: there is no such option, or its value is of the wrong kind or out of range.
    """
    for name, value in options.items():
        option = SEND_OPTIONS.get(name)
        if option is None:
            raise ConfigurationError(f"send has no option {name!r}" + did_you_mean(name, SEND_OPTIONS))
        if value is not None and not option.check(value):
            raise ConfigurationError(f"{name} must be {option.allowed}, not {value!r}")


class SubscribeOptions(Value):
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
        return {name: value for name, value in fields_of(self).items() if value is not None and value is not False}


def _check_texts(options: object, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and not _is_text(value):
            raise ConfigurationError(f"{name} must be {_TEXT}, not {value!r}")
