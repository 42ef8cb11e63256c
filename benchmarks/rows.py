"""What is measured: the rows of the table, each with its clients and what its figures are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ALL = ("stompy", "stomp.py", "go-stomp", "stompest", "stompman", "raw socket")
CLIENTS = (*ALL, "stompy.compat")
PROGRAMS = {
    "stompy": ("stompy_client", "stompy"),
    "stompy.compat": ("compat_client", "stomp"),
    "stomp.py": ("stomp_py_client", "stomp"),
    "stompest": ("stompest_client", "stompest"),
    "stompman": ("stompman_client", "stompman"),
    "raw socket": ("raw_client", "socket"),
}
"""Of the clients in Python: the module of `benchmarks.clients`, and what must be installed for it."""
SLOW = {"stompman": 4}
"""Clients that run a part of a round only."""
MIB = 2**20


@dataclass(frozen=True)
class Entry:
    """One client of a row."""

    client: str
    action: str
    count: int
    feed: Mapping[str, Any]


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
        reference: the client that ratios are taken to; or a row, which stompy runs beside it then; or `""`.
        goal: stompy's ratio that is aimed at, or its figure where there is no reference.
        unit: of the figures.
        tls: over TLS.
        prompt: the peer reads at once; else it reads now and then, so that writes of the client do not wake it.
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
    tls: bool = False
    prompt: bool = False

    def entries(self) -> dict[str, Entry]:
        """Return what runs side by side, by the name it has in the table."""
        entries = {client: Entry(client, self.action, self.count, self.feed) for client in self.clients}
        if self.reference in BASES:
            entries[self.reference] = BASES[self.reference].entries()["stompy"]
        return entries


def grown(name: str, title: str, base: str, count: int = 20_000, **feed: Any) -> Row:
    """Return a row that is compared with another of stompy's, a base case; the raw socket shows its limit."""
    action = "send-threads" if "threads" in feed else BASES[base].action
    return Row(name, title, action, count, ("stompy", "raw socket"), feed, reference=base, goal=1.3)


def sent(name: str, title: str, action: str, kind: str, *, prompt: bool = False) -> Row:
    """Return a row of what users send, which the other clients that send it the same way run too."""
    when = "the peer reads at once" if prompt else "the peer reads now and then"
    return Row(f"{name}-prompt" if prompt else name, f"{title}; {when}", action, clients=USERS,
               feed={"kind": kind}, prompt=prompt)  # fmt: skip


def embedded(name: str, title: str, count: int = 50_000, goal: float | None = 1.3, **feed: Any) -> Row:
    """Return a row of the embedded broker, which is compared with the one of ten producers."""
    return Row(f"embedded-{name}", f"embedded broker, {title}", "embedded-broker", count, ("stompy",),
               {**EMBEDDED, **feed}, reference="embedded-broker", goal=goal)  # fmt: skip


def worker(prefetch: int) -> Row:
    """Return a row of a worker, which is compared with a handler that acknowledges."""
    return Row(f"worker-{prefetch}", f"worker, 8 threads, a trivial task, prefetch {prefetch:,}", "worker", 20_000,
               ("stompy",), {"window": prefetch}, reference=f"receive-ack-{prefetch}", goal=1.5)  # fmt: skip


PYTHONS = ("stompy", "stomp.py")
USERS = (*PYTHONS, "go-stomp")
LIMIT = (*PYTHONS, "raw socket")

TABLE = (
    Row("receive", "receive, handler, headers untouched", "receive", goal=0.10),
    Row("receive-headers", "receive, headers read", "receive-headers", goal=0.16),
    Row("iterate", "iteration", "iterate", goal=0.13),
    Row("subscriptions", "1,000 subscriptions in turn", "receive", feed={"subscriptions": 1000}, goal=0.13),
    Row("receive-ack", "receive and acknowledge one by one", "receive-ack", goal=0.30),
    Row("send", "`send`, one call one write", "send", goal=0.50),
    Row("send-differing", "`send`, a header that differs each time", "send-differing", goal=0.70),
    Row("send-batch", "`send` in `batch()`; others: plain", "send-batch", goal=0.20),
    Row("send-transaction", "`send` in a transaction", "send-transaction", goal=0.20),
    Row("send-receipts", "receipts, pipelined, all awaited; stomp.py: none", "send-receipts", goal=1.0),
    Row("latency", "send, reply, handler", "latency", count=2_000, goal=1.0),
    Row("import", "`import`, as far as `connect`; raw socket: six modules", "import", 3, LIMIT,
        reference="raw socket", goal=1.5),
)  # fmt: skip
USERS_ROWS = tuple(
    sent(name, title, action, kind, prompt=prompt)
    for name, title, action, kind in (
        ("send-plain", "`send` of bytes alone", "send", "plain"),
        ("send-typed", "`send` of text with a content type and a header", "send", "typed"),
        ("send-persistent", "`send(persistent=True)`", "send", "persistent"),
        ("send-json", "`send` of JSON", "send", "json"),
        ("batch-typed", "`batch()`, text with a content type and a header", "send-batch", "typed"),
        ("transaction-typed", "transaction, the same", "send-transaction", "typed"),
    )
    for prompt in (False, True)
)
"""What users send, to a peer that reads now and then and to one that reads at once."""
EMBEDDED = {"producers": 10, "batch": 10}
ALSO = (
    Row("receive-tls", "receive over TLS", "receive", clients=LIMIT, tls=True),
    Row("send-tls", "`send` over TLS", "send", clients=LIMIT, tls=True),
    Row("receive-ws", "receive over WebSocket", "receive", clients=("stompy",), feed={"ws": True}, reference="receive",
        goal=1.6),
    Row("send-ws", "`send` over WebSocket", "send", clients=("stompy",), feed={"ws": True}, reference="send", goal=1.6),
    Row("1m-receive", "receive bodies of 1 MiB", "receive", 100, LIMIT, {"body": MIB}, reference="raw socket"),
    Row("1m-send", "`send` bodies of 1 MiB", "send", 100, LIMIT, {"body": MIB}, reference="raw socket"),
    Row("1m-receive-ws", "receive bodies of 1 MiB over WebSocket", "receive", 100, ("stompy",),
        {"body": MIB, "ws": True}, reference="1m-receive", goal=4.0),
    Row("1m-send-ws", "`send` bodies of 1 MiB over WebSocket", "send", 100, ("stompy",), {"body": MIB, "ws": True},
        reference="1m-send", goal=4.0),
    Row("threads", "`send` from 16 threads on one connection", "send-threads", clients=PYTHONS, feed={"threads": 16}),
    Row("receive-handled", "receive, acknowledged when the handler has returned", "receive", clients=("stompy",),
        feed={"mode": "handled"}, reference="receive"),
    Row("iterate-handled", "iteration, acknowledged when the next is asked for", "iterate", clients=("stompy",),
        feed={"mode": "handled"}, reference="iterate"),
    Row("memory", "a queued message", "hold", 10_000, PYTHONS, unit="B"),
    Row("idle", "an idle connection", "idle", 50, PYTHONS, unit="B"),
    Row("receive-ack-16", "receive and acknowledge, prefetch 16", "receive-ack", clients=PYTHONS, feed={"window": 16}),
    Row("receive-ack-1000", "receive and acknowledge, prefetch 1,000", "receive-ack", clients=PYTHONS,
        feed={"window": 1000}),
    Row("embedded-broker", "embedded broker, ten producers, one consumer", "embedded-broker", 50_000, ("stompy",),
        EMBEDDED, reference=""),
    Row("embedded-broker-1", "embedded broker, one producer, one write each", "embedded-broker", 20_000, ("stompy",),
        reference=""),
    Row("embedded-broker-hop", "through the embedded broker to another process, p50", "embedded-broker-hop", 2_000,
        ("stompy", "raw socket"), reference="raw socket"),
)  # fmt: skip
BASES = {row.name: row for row in (*TABLE, *ALSO)}

GROWTH = (
    worker(16),
    worker(1000),
    grown("10-subscriptions", "10 subscriptions", "receive", subscriptions=10),
    grown("100-subscriptions", "100 subscriptions", "receive", subscriptions=100),
    grown("1000-subscriptions", "1,000 subscriptions", "receive", subscriptions=1000),
    grown("40-headers", "40 headers", "receive", headers=40),
    grown("crlf", "lines that end with CR LF", "receive", crlf=True),
    grown("no-content-length", "no content-length", "receive", length=False),
    grown("binary", "binary bodies", "receive", binary=True),
    Row("bytes", "written byte by byte: each byte", "receive", 200, ("stompy",), {"write": 1, "parts": 600},
        reference=""),
    grown("10000-receipts", "10,000 receipts in flight", "send-receipts", window=10_000),
    grown("1-thread", "1 thread", "send", threads=1),
    grown("4-threads", "4 threads on one connection", "send", threads=4),
    grown("16-threads", "16 threads on one connection", "send", threads=16),
    grown("empty-receive", "receive empty bodies", "receive", body=0),
    grown("4k-receive", "receive bodies of 4 KiB", "receive", body=4096),
    grown("empty-send", "`send` empty bodies", "send", body=0),
    grown("4k-send", "`send` bodies of 4 KiB", "send", body=4096),
    Row("50m-receive", "receive 50 MiB: copies in memory", "receive", 1, PYTHONS, {"body": 50 * MIB, "copies": True},
        reference="", goal=2.0, unit="copies"),
    Row("50m-send", "`send` 50 MiB: copies beside the caller's", "send", 1, PYTHONS,
        {"body": 50 * MIB, "copies": True}, reference="", goal=1.0, unit="copies"),
    embedded("100-queues", "100 queues in turn", queues=100),
    embedded("10000-queues", "10,000 queues in turn", queues=10_000),
    embedded("idle-queues", "one of 10,000 queues", queues=10_000, used=1),
    embedded("as-activemq", "`like=\"activemq\"`", like="activemq"),
    embedded("as-artemis", "`like=\"artemis\"`", like="artemis"),
    embedded("as-rabbitmq", "`like=\"rabbitmq\"`", like="rabbitmq"),
    embedded("waiting", "100,000 waiting messages", 100_000, waiting=True),
    embedded("topic", "a topic", destination="/topic/bench"),
    embedded("equal", "10,000 selectors `kind = '...'` on a topic", 1_000, destination="/topic/bench",
             selector="kind = '%d'", selectors=10_000, header="kind:1\n"),
    embedded("like", "10,000 selectors `kind LIKE '...'` on a topic", 1_000, None, destination="/topic/bench",
             selector="kind LIKE '%d'", selectors=10_000, header="kind:1\n"),
)  # fmt: skip

ADAPTER = tuple(
    Row(
        f"compat-{action}",
        f"`{action}` by stompy.compat",
        action,
        20_000,
        ("stompy.compat", *PYTHONS),
        {},
        "stompy",
        1.5,
    )
    for action in ("send", "send-differing", "receive", "receive-headers", "receive-ack")
)
"""stompy.compat, beside what it is made of and what it stands in for."""

LONG = (grown("10-million", "10 million messages", "receive", 10_000_000),)
"""What takes minutes: only by its name, or with `--long`."""

SECTIONS = {"table": TABLE, "users": USERS_ROWS, "also": ALSO, "growth": GROWTH, "adapter": ADAPTER, "long": LONG}
BY_NAME = {row.name: row for rows in SECTIONS.values() for row in rows}
SECTION_OF = {row.name: section for section, rows in SECTIONS.items() for row in rows}
