"""The options that `tests/conftest.py` adds to pytest's own, for modules that have no `config`.

`chosen` holds the values once pytest is configured: after the conftest files of the command line are imported, and
before any test module is.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass
class Options:
    """The values of the options; those of a run that has none are the defaults."""

    activemq_home: str = field(default="", metadata={"help": "the folder whose lib/ has ActiveMQ's jars"})
    autobahn: str = field(default="", metadata={"help": "the command of the Autobahn test suite of WebSocket"})
    browser_libraries: str = field(default="", metadata={"help": "the folder with the STOMP libraries of web pages"})
    brokers: str = field(default="", metadata={"help": "the kinds of broker that scenarios run on; all by default"})
    long: bool = field(default=False, metadata={"help": "run what takes too long for every run"})
    minutes: int = field(default=60, metadata={"help": "how long what is killed on a cluster goes on"})
    published: str = field(default="", metadata={"help": "the folder of the published packages that use stomp.py"})
    require_spark: str = field(default="", metadata={"help": "packages that must be there: pyspark, pyarrow, ..., all"})
    seed: int = field(
        default_factory=lambda: random.randrange(2**32), metadata={"help": "what all random numbers are drawn from"}
    )
    transport: str = field(
        default="tcp", metadata={"help": "what scenarios connect by: tcp, tls12, tls13, mtls, unix, ws or wss"}
    )


chosen = Options()


def add_options(parser: pytest.Parser) -> None:
    """Add an option for each field of `Options`."""
    group = parser.getgroup("stompy")
    for name, each in Options.__dataclass_fields__.items():
        kind: dict[str, Any] = (
            {"action": "store_true"} if name == "long" else {"type": int if each.type == "int" else str}
        )
        group.addoption(f"--{name.replace('_', '-')}", default=None, help=each.metadata["help"], **kind)


def take_options(config: pytest.Config) -> None:
    """Set `chosen`; a seed that was drawn is an option from now on, so that worker processes have the same."""
    for name in Options.__dataclass_fields__:
        value = getattr(config.option, name)
        setattr(chosen, name, getattr(chosen, name) if value is None else value)
    config.option.seed = chosen.seed
    early = sys.modules.get("tests.support.seed")
    assert early is None or chosen.seed == early.SEED, "a conftest imports the seed before it is known"
