"""A consumer in simulated worlds, and the mistake that they find: `python -m pytest examples/test_simulated.py`.

The consumer charges orders and keeps them in a database. It acknowledges an order before the commit of the database, so
that a process that is killed in between has lost it.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import stompy
from stompy.testing import Simulation, SimulationError, simulate


def charge_too_early(message: stompy.Message, database: sqlite3.Connection) -> None:
    """Charge an order: the acknowledgement comes first."""
    database.execute("INSERT OR IGNORE INTO charged VALUES (?)", (message.text,))
    message.ack()
    database.commit()


def charge(message: stompy.Message, database: sqlite3.Connection) -> None:
    """Charge an order: what comes twice, as the acknowledgement was lost, is ignored by the database."""
    database.execute("INSERT OR IGNORE INTO charged VALUES (?)", (message.text,))
    database.commit()
    message.ack()


Charge = Callable[[stompy.Message, sqlite3.Connection], None]


def serve(url: str, path: Path, charge_one: Charge) -> None:
    """Charge orders; the process under test."""
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE IF NOT EXISTS charged (id TEXT PRIMARY KEY)")
    with stompy.connect(url) as conn:
        for message in conn.subscribe("/queue/orders", ack="client-individual"):
            charge_one(message, database)


def shop(simulation: Simulation, charge_one: Charge) -> None:
    """Send three orders to the process, and look that each was charged."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "orders.db"
        simulation.start(serve, simulation.url, path, charge_one)
        for number in range(3):
            simulation.send("/queue/orders", f"order {number}")
        simulation.wait_empty("/queue/orders")
        charged = {row[0] for row in sqlite3.connect(path).execute("SELECT id FROM charged")}
        for number in range(3):
            assert f"order {number}" in charged, f"order {number} was never charged"


def shop_that_charges(simulation: Simulation) -> None:
    """Charge as it should be."""
    shop(simulation, charge)


def shop_that_charges_too_early(simulation: Simulation) -> None:
    """Charge with the mistake."""
    shop(simulation, charge_too_early)


def test_each_order_is_charged(stomp_simulate: Callable[..., None]) -> None:
    """With the commit first, no schedule and no fault loses an order."""
    stomp_simulate(shop_that_charges, seeds=30)


def test_an_order_that_is_acknowledged_too_early_is_lost() -> None:
    """The simulation finds the mistake, and its seed finds it again."""
    with pytest.raises(SimulationError, match="was never charged") as found:
        simulate(shop_that_charges_too_early)
    with pytest.raises(SimulationError) as again:
        simulate(shop_that_charges_too_early, seeds=1, first=found.value.seed)
    assert again.value.trace == found.value.trace
