"""Values are what frozen, slotted dataclasses are: tests run for a value, and for a dataclass of the same fields."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Mapping
from typing import Any

import pytest

from stompy.values import Value, replace


class Point(Value):
    x: float
    y: float = 0.0

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is negative")


class Named(Point):
    name: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DataPoint:
    x: float
    y: float = 0.0

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is negative")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DataNamed(DataPoint):
    name: str | None = None


both = pytest.mark.parametrize(("point", "named"), [(Point, Named), (DataPoint, DataNamed)], ids=["value", "dataclass"])


@both
def test_fields_are_arguments_by_name_and_those_of_the_base_are_first(point: Any, named: Any) -> None:
    made = named(x=1.0, name="a")
    assert (made.x, made.y, made.name) == (1.0, 0.0, "a")
    assert repr(made) == f"{named.__name__}(x=1.0, y=0.0, name='a')"
    assert str(inspect.signature(named)) == "(*, x: 'float', y: 'float' = 0.0, name: 'str | None' = None) -> None"


@both
@pytest.mark.parametrize("arguments", [{}, {"y": 1.0}, {"x": 1.0, "z": 1.0}])
def test_a_missing_and_an_unknown_argument_are_errors(point: Any, named: Any, arguments: dict[str, float]) -> None:
    with pytest.raises(TypeError, match=r"argument: 'x'|argument 'z'"):
        point(**arguments)


@both
def test_arguments_have_no_position(point: Any, named: Any) -> None:
    with pytest.raises(TypeError, match="takes 1 positional argument"):
        point(1.0)


@both
def test_fields_are_checked_when_they_are_set(point: Any, named: Any) -> None:
    with pytest.raises(ValueError, match="negative"):
        named(x=-1.0)
    with pytest.raises(ValueError, match="negative"):
        dataclasses.replace(named(x=1.0), x=-1.0)


@both
def test_fields_are_frozen_and_there_are_no_others(point: Any, named: Any) -> None:
    made = named(x=1.0)
    for name in ("x", "name"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field {name!r}"):
            setattr(made, name, 2.0)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del made.x
    assert not hasattr(made, "__dict__")


@both
def test_equality_and_hash_are_those_of_class_and_fields(point: Any, named: Any) -> None:
    assert point(x=1.0) == point(x=1.0, y=0.0)
    assert point(x=1.0) != point(x=2.0)
    assert point(x=1.0) != named(x=1.0)
    assert point(x=1.0) != (1.0, 0.0)
    assert len({point(x=1.0), point(x=1.0), point(x=2.0)}) == 2


@both
def test_the_functions_of_dataclasses_take_it(point: Any, named: Any) -> None:
    made: Any = named(x=1.0)
    assert dataclasses.asdict(made) == {"x": 1.0, "y": 0.0, "name": None}
    assert [(each.name, each.type) for each in dataclasses.fields(point)] == [("x", "float"), ("y", "float")]
    assert [each.default for each in dataclasses.fields(made)] == [dataclasses.MISSING, 0.0, None]
    assert dataclasses.replace(made, y=2.0) == named(x=1.0, y=2.0)
    assert dataclasses.is_dataclass(named)


@both
def test_copies_are_equal(point: Any, named: Any) -> None:
    made = named(x=1.0, name="a")
    assert pickle.loads(pickle.dumps(made)) == copy.copy(made) == copy.deepcopy(made) == made  # noqa: S301 - our own


def test_a_default_may_be_a_mapping() -> None:
    class Tagged(Value):
        tags: Mapping[str, str] = {}

    assert dataclasses.replace(Tagged(), tags={"a": "b"}) == Tagged(tags={"a": "b"})


def test_replace_is_that_of_dataclasses() -> None:
    assert replace(Named(x=1.0), name="a") == Named(x=1.0, name="a")
