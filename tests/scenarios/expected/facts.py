"""All facts, and the scenarios in the order of the table."""

from __future__ import annotations

from tests.scenarios.expected.connecting import CONNECTING
from tests.scenarios.expected.errors import ERRORS
from tests.scenarios.expected.messages import MESSAGES
from tests.scenarios.expected.model import Fact
from tests.scenarios.expected.outages import OUTAGES
from tests.scenarios.expected.settling import SETTLING
from tests.scenarios.expected.subscribing import SUBSCRIBING

ALL: tuple[Fact, ...] = (*CONNECTING, *MESSAGES, *SETTLING, *SUBSCRIBING, *ERRORS, *OUTAGES)

FACTS = {fact.name: fact for fact in ALL}
SCENARIOS = tuple(dict.fromkeys(fact.scenario for fact in ALL))
