"""Arguments are checked at the call, against the annotations that the type checker reads too.

An annotation is evaluated when an argument other than the default is checked first, and then kept. A name that is
imported for type checkers only stands for the class of that name: if nobody has imported it, no value is one.
"""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import FunctionType, NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from stompy.default import Default
from stompy.errors import ConfigurationError
from stompy.printable import printable
from stompy.values import Value
from stompy.world import os

_LONGEST = 80
"""Characters of a value that are shown."""

_MILLISECONDS = 1000.0
"""Seconds from which a heartbeat was meant in milliseconds."""

_MEANT: Mapping[str, Callable[[Any], str]] = {
    "tls": lambda value: (
        f"for an authority of your own write tls=Tls(ca={value!r}), with an address that begins with stomp+ssl://"
        if isinstance(value, str)
        else "for TLS with the system's certificates write stomp+ssl:// in the address, or tls=Tls()"
    ),
    "limits": lambda _: "write limits=Limits(max_inbox_messages=...)",
    "reconnect": lambda _: "write reconnect=True, or reconnect=Reconnect(attempts=...)",
    "timeouts": lambda _: "write timeouts=Timeouts(connect=...), in seconds",
    "heartbeat": lambda _: "it is a pair of seconds, such as heartbeat=(10.0, 10.0)",
    "backoff": lambda _: "write backoff=Backoff(first=..., longest=...), in seconds",
    "telemetry": lambda _: "write telemetry=OpenTelemetry()",
    "listeners": lambda _: "write listeners=[...], of objects of your class derived from Listener",
    "retry_in_place": lambda _: "write retry_in_place=tenacity.Retrying(...)",
    "seen": lambda _: "write seen=SqliteSeen('seen.db'), of stompy.worker, or any object with these methods",
    "middleware": lambda _: "write middleware=[...]",
}
"""The likely meaning of a value of the wrong type, by the name of the option."""

_PHRASES: Mapping[Any, str] = {
    str: "text (str)",
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    bytes: "bytes",
    os.PathLike: "a path",
    object: "anything",
    None: "None",
    NoneType: "None",
}


def check_arguments(
    function: Callable[..., Any],
    values: Mapping[str, object],
    *,
    hidden: Collection[str] = (),
    skip: Collection[str] = (),
) -> None:
    """Check the arguments of a call against the annotations of the function.

    Args:
        function: has the annotations; arguments without one are not checked.
        values: the arguments, such as `locals()` at the start of the function.
        hidden: arguments of which the error shows the type only.
        skip: arguments that are checked elsewhere.

    Raises:
        ConfigurationError: an argument is of another type.
    """
    names, module = function.__annotations__, function.__module__
    defaults = function.__kwdefaults__ or {}
    for name, value in values.items():
        if name in names and name not in skip and not (name in defaults and value is defaults[name]):
            _check(name, value, names[name], module, hidden=name in hidden)


def check_options(kind: type, values: Mapping[str, object], *, hidden: Collection[str] = ()) -> None:
    """Check keyword arguments against the annotations of their `TypedDict`; raises as `check_arguments` does."""
    for name, value in values.items():
        if name in kind.__annotations__:
            _check(name, value, kind.__annotations__[name], kind.__module__, hidden=name in hidden)


def check_fields(made: Any, kind: type | None = None) -> None:
    """Check the fields of a value or dataclass against their annotations; raises as `check_arguments` does.

    Args:
        made: the object.
        kind: the class whose fields are checked; by default its own.
    """
    kind = kind or type(made)
    for name, annotation, default in _fields_of(kind):
        value = getattr(made, name)
        if value is not default:
            _check(name, value, annotation, kind.__module__)


def _fields_of(kind: Any) -> list[tuple[str, Any, Any]]:
    """Return name, annotation and default of the fields of a value or dataclass."""
    if issubclass(kind, Value):
        return [(name, annotation, kind.__defaults__.get(name, ...)) for name, annotation in kind.__types__.items()]
    from dataclasses import fields  # late, as it takes time

    return [(each.name, each.type, each.default) for each in fields(kind)]


def check_value(name: str, value: object, kind: type) -> None:
    """Check that an argument is of a type; raises as `check_arguments` does."""
    _check(name, value, kind, "")


def check_counts(*, least: int = 1, **counts: object) -> None:
    """Check that arguments are whole numbers of `least` or more, or `None`.

    Raises:
        ConfigurationError: one is not.
    """
    for name, value in counts.items():
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
            raise ConfigurationError(f"{name} must be a whole number of {least} or more, not {value!r}")


def check_heartbeat(pair: tuple[float, float]) -> None:
    """Check that a heartbeat is not in milliseconds, as other libraries have it.

    Raises:
        ConfigurationError: an interval has 1,000 seconds or more.
    """
    if max(pair) >= _MILLISECONDS:
        meant = tuple(seconds / _MILLISECONDS for seconds in pair)
        raise ConfigurationError(
            f"heartbeat is in seconds, not milliseconds, and below {_MILLISECONDS:g}: {pair!r} would be"
            f" {max(pair) / 3600:.1f} hours; write heartbeat={meant!r}"
        )


def is_async(function: object) -> bool:
    """Return whether a call only makes a coroutine, so that nothing has run when it returns."""
    import inspect  # late, as it takes time

    called = (function, type(function).__call__ if callable(function) else None)
    return any(each(one) for one in called for each in (inspect.iscoroutinefunction, inspect.isasyncgenfunction))


def _check(name: str, value: object, annotation: Any, module: str, *, hidden: bool = False) -> None:
    kind = _evaluated(getattr(annotation, "__forward_arg__", annotation), module)
    if not _fits(value, kind):
        raise ConfigurationError(_wrong(name, value, kind, hidden=hidden))


@functools.cache
def _evaluated(annotation: Any, module: str) -> Any:
    if not isinstance(annotation, str):
        return annotation
    code = compile(annotation, module, "eval")
    known = vars(sys.modules[module])
    names = {each: known.get(each) or getattr(builtins, each, None) or _late(each) for each in code.co_names}
    return eval(code, names)  # noqa: S307 - an annotation in our own source


class _LateType(type):
    """The type of a class that is imported for type checkers only, recognised by its name."""

    def __instancecheck__(cls, value: object) -> bool:
        return any(base.__name__ == cls.__name__ for base in type(value).__mro__)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _late(name)  # of a module


def _late(name: str) -> Any:
    return _LateType(name, (), {})


def _fits(value: object, kind: Any) -> bool:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(_fits(value, each) for each in parts)
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in parts)
    if kind is Callable or origin is Callable:
        return callable(value) and not is_async(value)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        wanted = parts[:1] * len(value) if parts[-1:] == (...,) else parts
        return len(value) == len(wanted) and all(map(_fits, value, wanted))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping)
    if isinstance(origin, type) and issubclass(origin, Iterable):
        if isinstance(value, (str, bytes)) or not isinstance(value, origin):
            return False
        return not isinstance(value, Sequence) or all(_fits(each, parts[0]) or _hears(each, parts[0]) for each in value)
    if kind is Any or kind is object or isinstance(kind, TypeVar):
        return True
    if kind is None:
        return value is None
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    if getattr(kind, "_is_protocol", False):
        return not isinstance(value, type) and all(hasattr(value, each) for each in _methods(kind))
    return isinstance(value, origin or kind)


def _hears(value: object, kind: Any) -> bool:
    """Return whether a value in a list has a method of a base class of callbacks, which need not be its base."""
    return isinstance(kind, type) and any(hasattr(value, each) for each in _methods(kind) if each[0] != "_")


def _methods(kind: type) -> list[str]:
    return [name for name, value in vars(kind).items() if isinstance(value, FunctionType) and name not in _NOT_OURS]


_NOT_OURS = ("__init__", "__subclasshook__")


def _wrong(name: str, value: object, kind: Any, *, hidden: bool = False) -> str:
    given = type(value).__name__ if hidden else printable(repr(value))
    if len(given) > _LONGEST:
        given = f"{given[:_LONGEST]}..."
    if callable(value) and is_async(value):
        given += ", which is async: only the coroutine would be made"
    meant = _MEANT[name](value) if name in _MEANT and not hidden else _example(name, kind)
    return f"{name} must be {_phrase(kind)}, not {given}" + (f"; {meant}" if meant else "")


def _example(name: str, kind: Any) -> str:
    from dataclasses import fields, is_dataclass  # late, as it takes time

    for each in get_args(kind) or (kind,):
        if isinstance(each, type) and is_dataclass(each):
            return f"write {name}={each.__name__}({fields(each)[0].name}=...)"
    return ""


def _phrase(kind: Any) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if isinstance(kind, str):
        return kind
    if origin in (Union, UnionType):
        flat = [each for part in parts for each in (("True", "False") if part is bool else (part,))]
        return _either(dict.fromkeys(_phrase(each) for each in flat if each is not Default))
    if origin is Literal:
        return _either(map(repr, parts))
    if kind is Callable or origin is Callable:
        return "a function"
    if origin is tuple and parts[-1] is not ...:
        return f"a tuple of {len(parts)} ({', '.join(map(_phrase, parts))})"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a mapping such as a dict"
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return f"a {'tuple' if origin is tuple else 'list'} of which each is {_phrase(parts[0])}"
    if getattr(kind, "_is_protocol", False):
        return f"a {kind.__name__}, which has {' and '.join(_methods(kind))}"
    known = (origin or kind).__name__ if hasattr(origin or kind, "__name__") else str(kind)
    article = "an" if known[0] in "AEIOU" or known[:3] == "SSL" else "a"
    return _PHRASES.get(origin or kind) or f"{article} {known}"


def _either(phrases: Iterable[str]) -> str:
    *others, last = phrases
    return f"{', '.join(others)} or {last}" if others else last
