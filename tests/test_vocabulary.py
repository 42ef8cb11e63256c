"""Signatures, command line, Spark's options and the reference agree with one definition of each option."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import stompy
from stompy.broker import Broker
from stompy.cli.main import build_parser
from stompy.spark.option_tables import SparkBrokerOptions
from stompy.spark.options import table_of
from stompy.worker import TaskArguments
from tests.support.vocabulary import OPTIONS, PAGE, Word, page

PING = build_parser("ping").parse_args(["ping"])
CLI = {f"--{name.replace('_', '-')}" for name in vars(PING)} - {"--destination", "--timeout", "--quiet", "--run"}
SPARK = {option.name: option for option in table_of(SparkBrokerOptions)}
ONLY_CLI = {"--ask-passcode", "--verbose", "--tls-insecure-skip-verification"}
ONLY_SPARK = {"passcodeEnv"}


def parameter(word: Word) -> inspect.Parameter:
    owner, _, name = word.api.partition(".")
    return inspect.signature(getattr(stompy, owner)).parameters[name]


@pytest.mark.parametrize("word", OPTIONS, ids=lambda word: word.api)
def test_an_option_has_one_name_and_default(word: Word) -> None:
    default: Any = parameter(word).default
    assert word.cli is None or word.cli in CLI
    if word.spark is not None:
        option = SPARK[word.spark]
        assert parameter(word).name.replace("_", "") in option.name.lower()
        if option.default is not None and isinstance(default, (int, float)):
            assert option.parse(option.default) == default


def test_no_option_is_without_a_definition() -> None:
    assert {word.cli for word in OPTIONS if word.cli} | ONLY_CLI == CLI
    assert {word.spark for word in OPTIONS if word.spark} | ONLY_SPARK == set(SPARK)


def test_attempts_and_backoff_are_the_words_everywhere() -> None:
    for owner in (stompy.Reconnect, stompy.Outbox):
        assert {"attempts", "backoff"} <= set(inspect.signature(owner).parameters)
    assert {"attempts", "backoff"} <= set(TaskArguments.__annotations__)
    assert "attempts" in inspect.signature(Broker).parameters
    every = {name for owner in (stompy.connect, stompy.Worker, stompy.Outbox, stompy.Reconnect, Broker)
             for name in (*inspect.signature(owner).parameters, *TaskArguments.__annotations__)}  # fmt: skip
    assert not {name for name in every if "retries" in name or "tries" in name or name.endswith("_delay")}


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.support.vocabulary"
