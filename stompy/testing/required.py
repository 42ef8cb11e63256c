"""A broker for a test; if there is none, the test is skipped, or fails if the broker is required."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from stompy.world import os

if TYPE_CHECKING:
    from stompy.testing.brokers.running import RunningBroker

REQUIRE_VARIABLE = "STOMPY_REQUIRE_BROKERS"
"""The kinds whose absence is a failure, with commas between them, or `all`."""


def broker_or_skip(kind: str, **options: Any) -> RunningBroker:
    """Start a broker and return it; see `stompy.testing.containers.start_broker`.

    Where none can be had the test is skipped, with every reason; it fails instead if `STOMPY_REQUIRE_BROKERS` names the
    kind.

    Raises:
        ConfigurationError: no such kind or option, or the broker lacks what an option asks for.
    """
    from stompy.testing.brokers.settings import BrokerUnavailable
    from stompy.testing.containers import start_broker

    try:
        return start_broker(kind, **options)
    except BrokerUnavailable as error:
        missing(kind, "; ".join(error.reasons))


def required(kind: str) -> bool:
    """Return whether `STOMPY_REQUIRE_BROKERS` names a kind of broker."""
    return not {kind, "all"}.isdisjoint(name.strip() for name in os.environ.get(REQUIRE_VARIABLE, "").split(","))


def missing(kind: str, reason: str) -> NoReturn:
    """Skip the test, or fail it if `STOMPY_REQUIRE_BROKERS` names the kind."""
    if required(kind):
        pytest.fail(f"the {kind} broker is required: {reason}", pytrace=False)
    pytest.skip(f"no {kind} broker: {reason}")
