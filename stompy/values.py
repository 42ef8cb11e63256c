"""Values: what frozen, slotted dataclasses are, for the classes that every connection needs.

A dataclass compiles six methods of its own when its module is imported, and `dataclasses` is slow to import itself. The
methods of values are written once. The functions of `dataclasses` take them too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from dataclasses import Field
    from dataclasses import replace as replace

    from typing_extensions import dataclass_transform
else:

    def replace(value, /, **changes):
        """Return a copy with other values of some fields."""
        return value.__replace__(**changes)

    def dataclass_transform(**_):
        """Tell type checkers which arguments a class takes."""
        return lambda kind: kind


def fields_of(value: Value) -> dict[str, Any]:
    """Return the fields of a value, by name."""
    return {name: getattr(value, name) for name in type(value).__types__}


class _OfDataclass:
    """An attribute of a class of values: that of a dataclass of the same fields, which is made when it is asked for."""

    def __init__(self, look: Callable[[type], Any]) -> None:
        self._look = look

    def __get__(self, value: Value | None, kind: type[Value]) -> Any:
        return self._look(_dataclass_of(kind))


@cache
def _dataclass_of(kind: type[Value]) -> type:
    from copy import copy
    from dataclasses import MISSING, field, make_dataclass

    fields: list[Any] = []
    for name, annotation in kind.__types__.items():
        default = kind.__defaults__.get(name, MISSING)
        changes = type(default).__hash__ is None  # a dataclass takes no default that could
        options = {"default_factory": partial(copy, default)} if changes else {"default": default}
        fields.append((name, annotation, field(**options)))
    return make_dataclass(kind.__name__, fields, kw_only=True)


def _signature(kind: type) -> Any:
    import inspect

    return inspect.signature(kind)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class _ValueType(type):
    """Makes slots of the annotations in a class.

    Attributes:
        __types__: the annotations of all fields, also of the base.
        __defaults__: the defaults of those that have one.
    """

    __types__: dict[str, str]
    __defaults__: dict[str, Any]

    def __new__(cls, name: str, bases: tuple[_ValueType, ...], members: dict[str, Any]) -> _ValueType:
        own = members.get("__annotations__", {}) if bases else {}
        defaults = {each: members.pop(each) for each in own if each in members}
        made = super().__new__(cls, name, bases, {**members, "__slots__": tuple(own)})
        made.__types__ = {each: kind for base in bases for each, kind in base.__types__.items()} | own
        made.__defaults__ = {each: value for base in bases for each, value in base.__defaults__.items()} | defaults
        return made


class Value(metaclass=_ValueType):
    """Base of values: annotations in a class are its fields, all of them arguments by name."""

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    else:
        __dataclass_fields__ = _OfDataclass(lambda kind: kind.__dataclass_fields__)
        __signature__ = _OfDataclass(_signature)

    def __init__(self, **given: Any) -> None:
        kind = type(self)
        values = {**kind.__defaults__, **given}
        if values.keys() != kind.__types__.keys():
            _signature(kind).bind(**given)  # raises an error that names the argument
        for name in kind.__types__:
            object.__setattr__(self, name, values[name])
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check the fields; called when they are set."""

    def __setattr__(self, name: str, value: object) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Value) or type(other) is not type(self):
            return NotImplemented
        return fields_of(self) == fields_of(other)

    def __hash__(self) -> int:
        return hash(tuple(fields_of(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in fields_of(self).items())})"

    def __replace__(self, /, **changes: Any) -> Any:
        return type(self)(**{**fields_of(self), **changes})

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **fields_of(self)), ()
