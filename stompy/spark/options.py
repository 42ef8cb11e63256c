"""Parsing the options of the source and the sink, by one table for each, which is also the source of their docs.

Spark passes options as text, and their names without case. Docs write names in camelCase; `max_messages`, `maxMessages`
and `maxmessages` are the same. An unknown name raises an error that suggests the nearest one.

To add an option, add a field to its dataclass (`broker_options.py`, `source_options.py`, ...), from which the table is
made. The page of options in the documentation is generated from the tables
(`python -m tests.documentation.spark_options`).
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from stompy.errors import ConfigurationError

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)")
_SIZE = re.compile(r"(\d+)\s*([bkmgt]?)b?")
_KAFKAS = {
    "kafka.bootstrap.servers": "url", "subscribe": "destination", "subscribepattern": "destination",
    "assign": "destination", "topic": "destination", "maxoffsetspertrigger": "maxMessagesPerTrigger",
    "minoffsetspertrigger": "minMessagesPerTrigger", "minpartitions": "numPartitions", "kafka.group.id": "durable",
}  # fmt: skip
"""The name of an option of Kafka's source and sink, in lower case, to its name here."""
_KAFKAS_OFFSETS = ("startingoffsets", "endingoffsets", "startingtimestamp", "endingtimestamp")
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")

Parse = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: in camelCase.
        parse: converts text to the value; raises `ValueError` with a description of valid values.
        default: as text; `None` means that the value is `None`.
        description: what it does, for the page of options.
        required: whether it must be given.
    """

    name: str
    parse: Parse
    default: str | None
    description: str
    required: bool = False

    @property
    def field(self) -> str:
        """The name in Python, in snake_case."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()


def option(parse: Parse, default: str | None, description: str, *, required: bool = False) -> Any:
    """Return a field of a dataclass of options; the arguments are those of `Option`, whose name is the field's."""
    metadata = {"parse": parse, "default": default, "description": description, "required": required}
    if required:
        return field(metadata=metadata)
    return field(default_factory=lambda: None if default is None else parse(default), metadata=metadata)


def table_of(kind: Any) -> tuple[Option, ...]:
    """Return the options of a dataclass; fields that hold other options are ignored."""
    return tuple(Option(_camel(each.name), **each.metadata) for each in fields(kind) if each.metadata)


def picked(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parsed values of the options of a dataclass."""
    return {each.name: values[each.name] for each in fields(kind) if each.metadata and each.name in values}


def parse(
    table: Iterable[Option],
    given: Mapping[str, str],
    *,
    ignored: Iterable[str] = (),
    elsewhere: tuple[Iterable[Option], str] = ((), ""),
) -> dict[str, Any]:
    """Return the value of each option of a table, by its field name.

    Args:
        table: the known options.
        given: the given options, by name.
        ignored: names that Spark itself adds.
        elsewhere: another table and its use, to explain an option that was passed to the wrong function.

    Raises:
        ConfigurationError: an unknown name, an invalid value, or a missing required option. Values are never shown, as
            one may be a secret under a wrong name.
    """
    options = {_key(option.name): option for option in table}
    values: dict[str, Any] = {}
    ignored_keys = {_key(name) for name in ignored}
    for name, text in given.items():
        if _key(name) in ignored_keys:
            continue
        option = options.get(_key(name))
        if option is None:
            raise ConfigurationError(_unknown(name, options.values(), *elsewhere))
        if option.field in values:
            raise ConfigurationError(f"option {option.name} is given twice")
        values[option.field] = _parsed(option, str(text))
    for option in options.values():
        if option.field not in values:
            if option.required:
                raise ConfigurationError(f"option {option.name} is missing: {option.description}")
            values[option.field] = None if option.default is None else _parsed(option, option.default)
    return values


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _key(name: str) -> str:
    return name.replace("_", "").lower()


def _unknown(name: str, options: Iterable[Option], others: Iterable[Option], theirs: str) -> str:
    if any(_key(other.name) == _key(name) for other in others):
        return f"option {name!r} is one {theirs}"
    names = {_key(option.name): option.name for option in options}
    if _key(name).startswith(_KAFKAS_OFFSETS):
        return f"unknown option {name!r}: a queue has no offsets; a query begins with the oldest message in it"
    ours = _KAFKAS.get(_key(name))
    if ours in names.values():
        return f"unknown option {name!r}; Kafka's option corresponds to the option {ours} here"
    if _key(name).startswith("kafka."):
        return (
            f"unknown option {name!r}: it is an option of Kafka's client; there are {', '.join(sorted(names.values()))}"
        )
    close = difflib.get_close_matches(_key(name), names, n=1, cutoff=0.6)
    near = f"; did you mean {names[close[0]]}?" if close else f"; there are {', '.join(sorted(names.values()))}"
    return f"unknown option {name!r}{near}"


def _parsed(option: Option, text: str) -> Any:
    try:
        return option.parse(text.strip())
    except ValueError as error:
        raise ConfigurationError(f"option {option.name} must be {error}") from None


# Parsers of values.


def text(value: str) -> str:
    """Return text of at least one character."""
    if not value:
        raise ValueError("text of at least one character")
    return value


def texts(value: str) -> tuple[str, ...]:
    """Return one or more different texts, separated by commas."""
    found = tuple(part.strip() for part in value.split(","))
    if not all(found) or len(set(found)) < len(found):
        raise ValueError("one or several different texts, separated by commas")
    return found


def count(value: str) -> int:
    """Return a whole number of 1 or more."""
    return _whole(value, least=1)


def count_or_none(value: str) -> int | None:
    """Return a whole number of 1 or more, or `None` for 0."""
    return _whole(value, least=0) or None


def number(value: str) -> int:
    """Return a whole number of 0 or more."""
    return _whole(value, least=0)


def _whole(value: str, *, least: int) -> int:
    if not (value.isascii() and value.isdigit()) or int(value) < least:
        raise ValueError(f"a whole number of {least} or more")
    return int(value)


def seconds(value: str) -> float:
    """Return a duration in seconds, from text such as `30`, `1.5s`, `200ms`, `5m`, `2h` or `1d`."""
    found = _DURATION.fullmatch(value.lower())
    duration = float(found[1]) * _SECONDS[found[2]] if found else math.nan
    if not 0 <= duration < math.inf:
        raise ValueError("a duration such as 30, 1.5s, 200ms, 5m or 2h")
    return duration


def size(value: str) -> int:
    """Return a size in bytes, from text such as `4096`, `64k`, `8m` or `1g` (powers of 1024)."""
    found = _SIZE.fullmatch(value.lower())
    if not found:
        raise ValueError("a size such as 4096, 64k, 8m or 1g")
    return int(found[1]) * _UNITS[found[2]]


def size_or_none(value: str) -> int | None:
    """Return a size, or `None` for 0."""
    return size(value) or None


def flag(value: str) -> bool:
    """Return true or false."""
    if value.lower() in _TRUE:
        return True
    if value.lower() in _FALSE:
        return False
    raise ValueError("true or false")


def choice(*choices: str) -> Parse:
    """Return a parser of one of several words, in any case."""

    def parse_choice(value: str) -> str:
        if value.lower() not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return value.lower()

    return parse_choice


def headers(value: str) -> dict[str, str]:
    """Return headers from a JSON object; not separate options, as Spark's names of options lose their case."""
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(item, str) for item in found.values()):
        raise ValueError('a JSON object of text, such as {"selector": "region = \'EU\'"}')
    return found


def heartbeat(value: str) -> tuple[float, float]:
    """Return two intervals in seconds: ours, the broker's."""
    parts = value.split(",")
    try:
        send, receive = (seconds(part.strip()) for part in parts)
    except ValueError:
        raise ValueError("two intervals in seconds, the client's and the broker's, such as 10,10") from None
    return send, receive
