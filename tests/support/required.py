"""Brokers that a run must not do without."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

VARIABLE = "STOMPY_REQUIRE_BROKERS"


def required(kind: str, reason: str) -> NoReturn:
    """Skip the test, or fail it where `STOMPY_REQUIRE_BROKERS` names the kind."""
    if kind in os.environ.get(VARIABLE, "").replace(" ", "").split(","):
        pytest.fail(f"a {kind} broker is required: {reason}", pytrace=False)
    pytest.skip(f"no {kind} broker: {reason}")
