"""The options of Spark, as dataclasses: the fields of each are its table, by which text is parsed and documented.

Spark passes options as text, and their names without case. Docs write names in camelCase; `max_messages`, `maxMessages`
and `maxmessages` are the same. An unknown name raises an error that suggests the nearest one. An option that Spark's
Kafka source has too has its name.

To add an option, add a field to its dataclass in `option_tables.py`. The page of options in the documentation is
generated from the fields (`python -m tests.documentation.spark_options`).
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

from stompy.errors import ConfigurationError

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)")
_SIZE = re.compile(r"(\d+)\s*([bkmgt]?)b?")
_SECRETS = ("passcode", "password")
NO_SECRETS = (
    "options are pickled, sent to executors and printed by programs. Use a reference instead: passcodeEnv (an "
    "environment variable) or passcodeFile, of the process that connects"
)
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")
EARLIEST, LATEST = -2, -1
"""Positions as Kafka's source writes them among sequence numbers: the oldest message, and the end."""
_POSITIONS = {"earliest": EARLIEST, "latest": LATEST}
_INSTEAD = {
    "kafka.bootstrap.servers": "url",
    "subscribe": "destination",
    "subscribepattern": "destination",
    "assign": "destination",
    "topic": "destination",
    "minpartitions": "numPartitions",
    "kafka.group.id": "durable",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "login": "url=stomp://login@host:61613",
    "tlskey": "tlsCert=certificate,key",
}
"""What to write in place of an option of Kafka's source and sink, or of `stompy.connect`; names in lower case."""

Parse = Callable[[str], Any]
_Options = TypeVar("_Options")


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        field: the name in Python, in snake_case.
        parse: converts text to the value; raises `ValueError` with a description of valid values.
        default: as text; `None` means that the value is `None`.
        description: what it does, for the page of options.
        required: whether it must be given.
    """

    field: str
    parse: Parse
    default: str | None
    description: str
    required: bool = False

    @property
    def name(self) -> str:
        """The name in Spark, in camelCase."""
        first, *others = self.field.split("_")
        return first + "".join(map(str.capitalize, others))


def option(parse: Parse, default: str | None, description: str, *, required: bool = False) -> Any:
    """Return a field of a dataclass of options; the arguments are those of `Option`, whose name is the field's."""
    metadata = {"parse": parse, "default": default, "description": description, "required": required}
    if required:
        return field(metadata=metadata)
    return field(default_factory=lambda: None if default is None else parse(default), metadata=metadata)


def table_of(kind: Any) -> tuple[Option, ...]:
    """Return the options of a dataclass, those that it inherits first."""
    return tuple(Option(each.name, **each.metadata) for each in fields(kind))


def own_options(kind: Any) -> tuple[Option, ...]:
    """Return the options of a dataclass, without those that it inherits."""
    inherited = {option for base in kind.__bases__ if is_dataclass(base) for option in table_of(base)}
    return tuple(option for option in table_of(kind) if option not in inherited)


def parse(
    kind: type[_Options],
    given: Mapping[str, str],
    *,
    without: Iterable[str] = (),
    elsewhere: tuple[Iterable[Option], str] = ((), ""),
) -> _Options:
    """Return the options in text.

    Args:
        kind: the dataclass of the result.
        given: the given options, by name.
        without: names of options of `kind` that are not accepted.
        elsewhere: another table and its use, to explain an option that was passed to the wrong function.

    Raises:
        ConfigurationError: an unknown name, an invalid value, or a missing required option. Values are never shown, as
            one may be a secret under a wrong name.
    """
    options = {key_of(option.name): option for option in table_of(kind) if option.name not in without}
    values: dict[str, Any] = {}
    for name, text in given.items():
        option = options.get(key_of(name))
        if option is None:
            raise ConfigurationError(_unknown(name, options, *elsewhere))
        if option.field in values:
            raise ConfigurationError(f"option {option.name} is given twice")
        try:
            values[option.field] = option.parse(str(text).strip())
        except ValueError as error:
            raise ConfigurationError(f"option {option.name} must be {error}") from None
    for option in options.values():
        if option.required and option.field not in values:
            raise ConfigurationError(f"option {option.name} is missing: {option.description}")
    return kind(**values)


def key_of(name: str) -> str:
    """Return the name of an option in lower case, without underscores."""
    return name.replace("_", "").lower()


def _unknown(name: str, options: Mapping[str, Option], others: Iterable[Option], theirs: str) -> str:
    """Return why an option is refused, with what to write."""
    key = key_of(name)
    if key in _SECRETS:
        return f"option {name!r} is not accepted: {NO_SECRETS}"
    if any(key_of(other.name) == key for other in others):
        return f"option {name!r} is one {theirs}"
    if key in _INSTEAD:
        return f"unknown option {name!r}: write {_INSTEAD[key]} instead"
    close = difflib.get_close_matches(key, options, n=1, cutoff=0.6)
    if close:
        return f"unknown option {name!r}; did you mean {options[close[0]].name}?"
    return f"unknown option {name!r}; there are {', '.join(sorted(option.name for option in options.values()))}"


# Parsers of values.


def text(value: str) -> str:
    """Return text of at least one character."""
    if not value:
        raise ValueError("text of at least one character")
    return value


def addresses(value: str) -> str:
    """Return an address, or several separated by commas, after which there may be spaces."""
    return re.sub(r",\s+", ",", text(value))


def texts(value: str) -> tuple[str, ...]:
    """Return one or more different texts, separated by commas."""
    found = tuple(part.strip() for part in value.split(","))
    if not all(found) or len(set(found)) < len(found):
        raise ValueError("one or several different texts, separated by commas")
    return found


def count(value: str) -> int:
    """Return a whole number of 1 or more."""
    return _whole(value, least=1)


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
    """Return a size of at least one byte, from text such as `4096`, `64k`, `8m` or `1g` (powers of 1024)."""
    found = _SIZE.fullmatch(value.lower())
    if not found or not int(found[1]):
        raise ValueError("a size of at least one byte, such as 4096, 64k, 8m or 1g")
    return int(found[1]) * _UNITS[found[2]]


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


def positions(value: str) -> dict[str, int]:
    """Return positions by folder from a JSON object; `earliest` and `latest` are those of all, under an empty name."""
    if value.lower() in _POSITIONS:
        return {"": _POSITIONS[value.lower()]}
    wanted = 'earliest, latest, or a JSON object of sequence numbers by folder, such as {"/data/spool": 7}'
    return _object(value, lambda item: type(item) is int and item >= EARLIEST, wanted)


def headers(value: str) -> dict[str, str]:
    """Return headers from a JSON object; not separate options, as Spark's names of options lose their case."""
    wanted = 'a JSON object of text, such as {"selector": "region = \'EU\'"}'
    return _object(value, lambda item: isinstance(item, str), wanted)


def _object(value: str, fits: Callable[[Any], bool], wanted: str) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(map(fits, found.values())):
        raise ValueError(wanted)
    return found
