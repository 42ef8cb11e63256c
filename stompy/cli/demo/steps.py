"""The steps of `stompy demo`, each on a live connection to the embedded broker."""

from __future__ import annotations

from collections.abc import Callable

from stompy.broker.broker import Broker
from stompy.cli.demo.printer import DemoPrinter
from stompy.connection.connecting import connect
from stompy.connection.connection import Connection
from stompy.connection.listeners import Listener
from stompy.connection.message import Message
from stompy.deadline import Deadline
from stompy.errors import ReceiveTimeoutError
from stompy.frames.frame import Frame
from stompy.world import threading, time

HEARTBEAT = (0.25, 0.25)
"""Seconds; short, so that the demo can show some beats."""
_PATIENCE = 10.0
_BEATS = 3
_DEAD_LETTERS = "/queue/DLQ"
_MOST_REFUSALS = 20


def connection(printer: DemoPrinter, broker: Broker, conn: Connection) -> None:
    """Show what CONNECT and CONNECTED have agreed."""
    with printer.step("A connection", "CONNECT and CONNECTED agree on a version of STOMP and on heartbeats."):
        ours, theirs = conn.heartbeat
        printer.happened("broker", f"{broker.url}, which identifies itself as {conn.server}")
        printer.happened(
            "agreed", f"STOMP {conn.version}, heartbeats every {ours:g} s (client) and {theirs:g} s (broker)"
        )
        printer.check("connected", holds=conn.connected)


def send(printer: DemoPrinter, broker: Broker, conn: Connection) -> None:
    """Send to a queue and receive from it."""
    with printer.step("A message", "A queue keeps a message until a consumer takes it."):
        conn.send("/queue/hello", "Grüße, STOMP!", headers={"lang": "de"}, confirm=True)
        printer.happened("sent", f"to /queue/hello, where {broker.depth('/queue/hello')} message waits now")
        message = conn.subscribe("/queue/hello").receive(timeout=_PATIENCE)
        printer.happened("received", f"{message.text!r} with lang={message.headers['lang']}")
        printer.happened("its type", message.headers["content-type"])
        printer.check("the text came back as it was sent", holds=message.text == "Grüße, STOMP!")


class Recorder(Listener):
    """Notes its events; on the dispatcher thread."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.threads: set[str] = set()
        self.complete = threading.Event()

    def on_message(self, message: Message) -> None:
        """Note a message; the third one completes the step."""
        self._note(f"message {message.text!r}")
        if message.text == "3":
            self.complete.set()

    def on_receipt(self, frame: Frame) -> None:
        """Note a receipt."""
        self._note("a receipt")

    def _note(self, what: str) -> None:
        self.events.append(what)
        self.threads.add(threading.current_thread().name)


def listener(printer: DemoPrinter, broker: Broker, conn: Connection) -> None:
    """Receive messages as they arrive."""
    with printer.step(
        "A listener", "A listener is called for each event of a connection, on another thread: no waiting is needed."
    ):
        recorder = Recorder()
        conn.add_listener(recorder)
        conn.subscribe("/topic/numbers")
        for number in (1, 2, 3):
            conn.send("/topic/numbers", str(number))
        recorder.complete.wait(_PATIENCE)
        conn.remove_listener(recorder)
        printer.happened("events", ", ".join(recorder.events))
        printer.happened("on thread", ", ".join(recorder.threads))
        numbers = [what for what in recorder.events if what.startswith("message")]
        printer.check("three messages, in order", holds=numbers == ["message '1'", "message '2'", "message '3'"])


def receipt(printer: DemoPrinter, broker: Broker, conn: Connection) -> None:
    """Let the broker confirm."""
    with printer.step(
        "A receipt", "The broker confirms what it has processed. Many receipts may be in flight at once."
    ):
        started = time.perf_counter()
        receipts = [conn.send("/queue/sure", str(number), receipt=True) for number in range(100)]
        for one in receipts:
            one.wait(_PATIENCE)
        elapsed = time.perf_counter() - started
        printer.happened("waited for", f"{len(receipts)} receipts, {elapsed * 1000:.0f} ms for all of them")
        printer.happened("the last", f"{receipts[-1].id} {receipts[-1].outcome}")
        printer.check("the queue has all 100", holds=broker.depth("/queue/sure") == 100)


class ChangeOfMind(Exception):
    """Raised in a transaction of the demo, to abort it."""


def transactions(printer: DemoPrinter, broker: Broker, conn: Connection) -> None:
    """Commit one transaction and abort another."""
    with printer.step("Transactions", "The broker applies a transaction as a whole, or not at all."):
        with conn.transaction() as transaction:
            transaction.send("/queue/accounts", "take 10 from A")
            transaction.send("/queue/accounts", "give 10 to B")
            early = broker.depth("/queue/accounts")
        printer.happened("committed", f"2 messages; {early} were visible before the commit")
        subscription = conn.subscribe("/queue/accounts")
        came = [subscription.receive(timeout=_PATIENCE).text for _ in range(2)]
        printer.check("both came after it, none before", holds=came == ["take 10 from A", "give 10 to B"] and not early)
        try:
            with conn.transaction() as transaction:
                transaction.send("/queue/accounts", "take 10 from A, again")
                raise ChangeOfMind
        except ChangeOfMind:
            printer.happened("aborted", "1 message, as the block raised an exception")
        conn.send("/queue/accounts", "the next one", confirm=True)
        after = subscription.receive(timeout=_PATIENCE).text
        printer.check("nothing of the aborted one arrived", holds=after == "the next one" and not subscription.queued)


def nack(printer: DemoPrinter, broker: Broker, conn: Connection) -> None:
    """Refuse a message and get it again."""
    with printer.step("Nack and redelivery", "A rejected message is delivered again, marked as redelivered."):
        subscription = conn.subscribe("/queue/jobs", ack="client-individual")
        conn.send("/queue/jobs", "a job")
        first = subscription.receive(timeout=_PATIENCE)
        first.nack()
        printer.happened("refused", f"{first.text!r}, redelivered={_yes(first.redelivered)}")
        second = subscription.receive(timeout=_PATIENCE)
        second.ack(receipt=True)
        printer.happened("came again", f"{second.text!r}, redelivered={_yes(second.redelivered)}")
        printer.check("the second delivery is marked", holds=not first.redelivered and second.redelivered)
        subscription.close()
        printer.check("and after its ack the queue is empty", holds=_is_empty(conn, "/queue/jobs"))


def dead_letters(printer: DemoPrinter, broker: Broker, conn: Connection) -> None:
    """Refuse a message until it is a dead letter."""
    with printer.step(
        "Dead letters", "A message that is refused each time ends in a queue of its own, with the reason."
    ):
        subscription = conn.subscribe("/queue/poison", ack="client-individual")
        conn.send("/queue/poison", "a job that nobody can do", confirm=True)
        refusals = 0
        while not broker.depth(_DEAD_LETTERS) and refusals < _MOST_REFUSALS:
            subscription.receive(timeout=_PATIENCE).nack(receipt=True).wait(_PATIENCE)
            refusals += 1
        subscription.close()
        printer.happened("refused", f"{refusals} times, then it was in {_DEAD_LETTERS}")
        letter = conn.subscribe(_DEAD_LETTERS).receive(timeout=_PATIENCE)
        origin, reason = letter.headers["original-destination"], letter.headers["dead-letter-reason"]
        printer.happened("it says", f"from {origin}, {reason}")
        printer.check("the dead letter names its queue", holds=origin == "/queue/poison")


def durable(printer: DemoPrinter, broker: Broker, conn: Connection) -> None:
    """Get what a topic had while nobody was connected."""
    with printer.step(
        "A durable subscription", "The broker keeps the messages of a topic while the subscriber is away."
    ):
        with connect(broker.url, client_id="reader") as reader:
            reader.subscribe("/topic/news", durable="news")
        conn.send("/topic/news", "what happened meanwhile", confirm=True)
        printer.happened("sent", "1 message to /topic/news, while its subscriber is away")
        with connect(broker.url, client_id="reader") as reader:
            subscription = reader.subscribe("/topic/news", durable="news")
            text = subscription.receive(timeout=_PATIENCE).text
            subscription.unsubscribe(delete=True)
        printer.happened("received", f"{text!r}, after it had come back")
        printer.check("nothing was missed", holds=text == "what happened meanwhile")


def heartbeats(printer: DemoPrinter, broker: Broker, conn: Connection) -> None:
    """Send nothing for a while, and count the heartbeats."""
    with printer.step("Heartbeats", "When idle, each side sends line ends, so that a dead peer is detected."):
        conn.flush()
        before, started = conn.stats(), time.monotonic()
        _until(lambda: _beats(before.bytes_received, conn.stats().bytes_received) >= _BEATS)
        now = conn.stats()
        silent = now.frames_received == before.frames_received and now.frames_sent == before.frames_sent
        theirs = _beats(before.bytes_received, now.bytes_received)
        ours = _beats(before.bytes_sent, now.bytes_sent)
        printer.happened("idle for", f"{time.monotonic() - started:.1f} s without a frame")
        printer.happened("heartbeats", f"{theirs} from the broker, {ours} from the client")
        printer.check("both sides sent heartbeats", holds=silent and theirs >= _BEATS and ours > 0 and conn.connected)


STEPS: tuple[Callable[[DemoPrinter, Broker, Connection], None], ...] = (
    connection,
    send,
    listener,
    receipt,
    transactions,
    nack,
    dead_letters,
    durable,
    heartbeats,
)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _is_empty(conn: Connection, queue: str) -> bool:
    subscription = conn.subscribe(queue)
    try:
        subscription.receive(timeout=0)
    except ReceiveTimeoutError:
        return True
    finally:
        subscription.close()
    return False


def _beats(before: int, now: int) -> int:
    # While no frame passes, each byte is a heart-beat: a single LF (STOMP 1.2, Heart-beating).
    return now - before


def _until(condition: Callable[[], bool]) -> None:
    deadline = Deadline(_PATIENCE)
    while not condition() and not deadline.expired:
        time.sleep(0.02)
