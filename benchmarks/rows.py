"""What is measured: the rows of the table, each with its clients and what its figures are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PEERS = ("stomp.py", "stompest", "stompman", "go-stomp", "raw socket")
ALL = ("stompy", *PEERS)
PROGRAMS = {
    "stompy": ("stompy_client", "stompy"),
    "stomp.py": ("stomp_py_client", "stomp"),
    "stompest": ("stompest_client", "stompest"),
    "stompman": ("stompman_client", "stompman"),
    "raw socket": ("raw_client", "socket"),
}
"""Of the clients in Python: the module of `benchmarks.clients`, and what must be installed for it."""
SLOW = {"stompman": 4}
"""Clients that run a part of a round only."""


@dataclass(frozen=True)
class Entry:
    """One client of a row."""

    client: str
    action: str
    feed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes:
        name: for the command line.
        title: for the table.
        action: what the clients do; those without that action are left out.
        count: messages of a round.
        clients: who is measured.
        feed: what the peer sends; further settings of the action.
        reference: the client that ratios are taken to, or the row of stompy's, which runs beside it then.
        goal: stompy's ratio that is aimed at.
        unit: of the figures.
    """

    name: str
    title: str
    action: str
    count: int = 20_000
    clients: tuple[str, ...] = ALL
    feed: Mapping[str, Any] = field(default_factory=dict)
    reference: str = "stomp.py"
    goal: float | None = None
    unit: str = "µs"

    def entries(self) -> dict[str, Entry]:
        """Return what runs side by side, by the name it has in the table."""
        entries = {client: Entry(client, self.action, self.feed) for client in self.clients}
        if self.reference in BY_NAME:
            base = BY_NAME[self.reference]
            entries[self.reference] = Entry("stompy", base.action, base.feed)
        return entries


TABLE = (
    Row("receive", "receive, handler, headers untouched", "receive", goal=0.10),
    Row("receive-headers", "receive, headers read", "receive-headers", goal=0.16),
    Row("iterate", "iteration", "iterate", clients=("stompy", "stomp.py", "stompest", "go-stomp"), goal=0.13),
    Row("subscriptions", "1,000 subscriptions in turn", "receive", feed={"subscriptions": 1000}, goal=0.13),
    Row("receive-ack", "receive and acknowledge one by one", "receive-ack", goal=0.30),
    Row("send", "`send`, one call one write", "send", goal=0.50),
    Row("send-differing", "`send`, a header that differs each time", "send-differing", goal=0.70),
    Row("send-batch", "`send` in `batch()`", "send-batch", goal=0.20),
    Row("send-transaction", "`send` in a transaction", "send-transaction", goal=0.20),
    Row("send-receipts", "receipts, pipelined, all awaited", "send-receipts", goal=1.0),
    Row("latency", "send, reply, handler", "latency", count=2_000, goal=1.0),
    Row("import", "`import`, as far as `connect`", "import", count=3, clients=("stompy", "stomp.py", "raw socket"),
        reference="raw socket", goal=1.5),
)  # fmt: skip

ROWS = TABLE
BY_NAME = {row.name: row for row in ROWS}
