"""`DEFAULT`, the value of an argument that is configured elsewhere; `None` is never one, but means "no limit"."""

from __future__ import annotations

import enum
from typing import Final, TypeVar

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
