"""What users may rely on, pinned: a public name or signature changes only together with `public_api.txt`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from tests.support.public_api import MODULES, PINNED, public_api


def test_public_names_and_signatures_are_those_of_the_file() -> None:
    pinned = PINNED.read_text(encoding="utf-8").splitlines()
    now = public_api()
    hint = "if this is meant, run `python -m tests.support.public_api`, and name the change in CHANGELOG.md"
    assert sorted(set(pinned) ^ set(now)) == [], hint


@pytest.mark.parametrize(
    "called", [stompy.connect, Broker, stompy.Worker, stompy.Outbox], ids=lambda called: called.__name__
)
def test_what_takes_settings_takes_them_in_groups(called: Callable[..., Any]) -> None:
    assert len(inspect.signature(called).parameters) <= 20


def test_the_fields_of_public_dataclasses_are_given_by_name() -> None:
    found = {
        value for module in MODULES for value in vars(import_module(module)).values() if dataclasses.is_dataclass(value)
    }
    found |= {value for name in stompy.__all__ if dataclasses.is_dataclass(value := getattr(stompy, name))}
    positional = {
        value.__name__: [each.name for each in dataclasses.fields(value) if each.init and not each.kw_only]
        for value in found
        if isinstance(value, type)
    }
    assert {name: fields for name, fields in positional.items() if len(fields) > 1} == {}


def test_every_timeout_is_given_by_name_and_none_is_a_default() -> None:
    """`None` is no limit: a method whose default is `None` has no limit by default, and there are only two."""
    unlimited = set()
    for module in MODULES:
        exports = import_module(module)
        for kind in (value for name in exports.__all__ if inspect.isclass(value := getattr(exports, name))):
            for name, method in inspect.getmembers(kind, inspect.isfunction):
                timeout = inspect.signature(method).parameters.get("timeout")
                if timeout is None or name.startswith("_"):
                    continue
                if kind is not stompy.Receipt:
                    assert timeout.kind is inspect.Parameter.KEYWORD_ONLY, (kind, name)
                if timeout.default is None:
                    unlimited.add(f"{kind.__name__}.{name}")
    assert unlimited <= {"Connection.wait_closed", "Receipt.result", "Receipt.exception"}
