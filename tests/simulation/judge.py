"""The judge of a simulated world: the breaches of the numbered promises of `docs/topics/delivery.md`.

It compares the outcomes of calls with the messages that were handled, and with those that the broker still has. It does
not depend on the code.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from stompy.testing.faults import HEARTBEAT, RECEIVED, SENT, FrameSplitter
from stompy.testing.network import READ, Tap
from stompy.transport.websocket.frames import BINARY, Decoder
from stompy.transport.websocket.handshake import END
from tests.simulation import outboxes, workers
from tests.simulation.seen import SLACK, Handled, Seen, Sent


class Wire:
    """What passes a stream, to see that COMMIT leaves after the broker has taken every frame before it.

    It also notes the answers and the messages that the client has read.

    Args:
        seen: the record.
        process: the one that has the client.
    """

    def __init__(self, seen: Seen, process: str) -> None:
        self._seen, self._process = seen, process
        self._splitters = {RECEIVED: FrameSplitter(), SENT: FrameSplitter(), READ: FrameSplitter()}
        self._count = self._taken = 0
        self._asked: dict[bytes, int] = {}
        self._last: dict[bytes, int] = {}
        """By transaction, the number of its last frame."""
        self._bodies: dict[bytes, str] = {}
        """By receipt, the bodies of the messages that a producer has sent outside of transactions."""
        self._over = False
        """Whether the client has read an ERROR, which is the last frame of a session."""
        self._subscribed: set[bytes] = set()
        """The destinations of its subscriptions."""
        self._leaves = False
        """Whether the client has ended a subscription: it takes no more messages."""

    def passes(self, side: str, data: bytes) -> None:
        """Look at the frames that bytes complete."""
        for command, frame in self._splitters[side].feed(data):
            if side == READ:
                if not self._over:
                    self._read(command, frame)
                continue
            if side == SENT:
                if command == "RECEIPT":
                    self._taken = max(self._taken, self._asked.get(_header(b"receipt-id", frame), 0))
                continue
            self._count += 1
            self._leaves |= command in ("UNSUBSCRIBE", "DISCONNECT")
            if command == "SUBSCRIBE":
                self._subscribed.add(_header(b"destination", frame))
            transaction = _header(b"transaction", frame)
            if command == "COMMIT" and self._last.get(transaction, 0) > self._taken:
                name = transaction.decode()
                self._seen.early_commits.append(f"COMMIT of {name} left before its frames were taken (promise 8)")
            elif transaction:
                self._last[transaction] = self._count
            receipt = _header(b"receipt", frame)
            self._asked[receipt] = self._count
            if command == "SEND" and self._process[0] == "p":
                body = _body(frame)
                reply_to = _header(b"reply-to", frame)
                # RabbitMQ makes the queue by this header.
                if reply_to and reply_to not in self._subscribed and self._seen.plan.like != "rabbitmq":
                    self._seen.breaches.append(f"{body} was asked on a session that gets no reply")
                if not _header(b"stompy-dedupe-id", frame):
                    self._seen.written[body] += 1
                if receipt and not transaction:
                    self._bodies[receipt] = body

    def _read(self, command: str, frame: bytes) -> None:
        self._over = command == "ERROR"
        if command == "MESSAGE":
            self._seen.read[self._process].append(_body(frame))
            if not self._leaves:
                self._seen.owed[self._process].add(_body(frame))
        elif body := self._bodies.get(_header(b"receipt-id", frame)):
            self._seen.answered[body] = "confirmed" if command == "RECEIPT" else "rejected"


class Web:
    """What passes a WebSocket, to see that a message has one frame of STOMP.

    Args:
        breaches: where to say that one has not.
        wire: sees the payloads.
    """

    def __init__(self, breaches: list[str], wire: Tap | None) -> None:
        self._breaches, self._wire = breaches, wire
        self._heads: dict[str, bytes | None] = {RECEIVED: b"", SENT: b"", READ: b""}
        """The beginnings of the handshake; `None` after it."""
        self._decoders = {RECEIVED: Decoder(masks=True), SENT: Decoder(masks=False), READ: Decoder(masks=False)}
        self._messages = {RECEIVED: b"", SENT: b""}

    def passes(self, side: str, data: bytes) -> None:
        """Look at the messages that bytes complete."""
        if side == READ and self._decoders[RECEIVED].closed:
            return  # a client that has sent its Close frame only waits for the end
        head = self._heads[side]
        if head is not None:
            head, end, data = (head + data).partition(END)
            self._heads[side] = None if end else head
        for opcode, payload, last in self._decoders[side].receive(data):
            if opcode <= BINARY:
                if self._wire is not None:
                    self._wire(side, payload)  # at once: a receiver needs no end of the message, as STOMP has its own
                if side == READ:
                    continue
                self._messages[side] += payload
                if last:
                    self._look(side, self._messages[side])
                    self._messages[side] = b""

    def _look(self, side: str, message: bytes) -> None:
        splitter = FrameSplitter()
        frames = [command for command, _ in splitter.feed(message) if command != HEARTBEAT]
        if splitter.rest() or len(frames) > 1:
            self._breaches.append(f"a message of WebSocket is no frame of STOMP: {message!r}")


def _header(name: bytes, frame: bytes) -> bytes:
    _, found, rest = frame.partition(b"\n" + name + b":")
    return rest.partition(b"\n")[0].rstrip(b"\r") if found else b""


def _body(frame: bytes) -> str:
    return frame.partition(b"\n\n")[2].rstrip(b"\0").decode()


def judge(seen: Seen) -> list[str]:
    """Return the breaches of what was promised."""
    plan, breaches = seen.plan, [*seen.breaches, *seen.early_commits]
    handled: dict[str, list[Handled]] = defaultdict(list)
    for each in seen.handled:
        handled[each.body].append(each)
    lossy = {each.queue for each in plan.receivers if each.mode == "auto"}
    all_arrived = _arrived(seen)
    for body, sent in seen.sent.items():
        copies = handled.get(body, [])
        arrived = body in all_arrived
        if sent.outcome == "confirmed" and not arrived and sent.queue not in lossy:
            breaches.append(f"{body} was confirmed, and is lost (promises 1, 11)")
        if sent.outcome == "written" and plan.faultless and not arrived and sent.queue not in lossy:
            breaches.append(f"{body} was written, nothing broke, and it is lost")
        if sent.outcome in ("not-sent", "rejected") and arrived:
            breaches.append(f"{body} was {sent.outcome}, and has arrived (promise 2)")
        if seen.written[body] > 1:
            breaches.append(f"{body} was written {seen.written[body]} times, without an id")
        answer = seen.answered.get(body, sent.outcome)
        doubted = sent.resends and answer == "rejected"  # its first copy may have arrived
        if sent.outcome not in (answer, "sending", "written", "timed-out") and not doubted:
            breaches.append(f"{body} was {sent.outcome}, although it had read that it was {answer} (promise 1)")
        forwarded = ">" in body
        unflagged = sum(not copy.redelivered for copy in copies)
        # Artemis flags the first only of the messages that a lost session gives back.
        if (
            unflagged > 1
            and plan.like != "artemis"
            and not forwarded
            and not (sent.resends and all(copy.dedupe_id for copy in copies))
        ):
            breaches.append(f"{body} was handled {len(copies)} times, {unflagged} times without a flag")
        twice = bool(plan.workers) and not workers.atomic(plan.like)
        if seen.left[body] > 1 and not sent.resends and not forwarded and not twice:
            breaches.append(f"{body} is in the broker {seen.left[body]} times")
        confirmed_at = seen.acknowledged.get(body)
        if confirmed_at is not None and not sent.resends:
            if seen.left[body]:
                breaches.append(f"{body} is in the broker although its ACK was confirmed")
            # A session may hand out what it has received until its reader has seen the end; the broker knows before.
            # The drop-in drops nothing of it, also when another consumer has it since.
            if any(copy.at > confirmed_at + SLACK and copy.consumer[0] != "d" for copy in copies):
                breaches.append(f"{body} was handled after its ACK was confirmed")
    breaches += _dropped(seen)
    for body in all_arrived - seen.sent.keys():
        breaches.append(f"{body} was never sent")
    breaches += _partial(seen, all_arrived)
    breaches += _out_of_order(seen)
    resent = {body for body, sent in seen.sent.items() if sent.resends}
    # The messages of the next session may be read before the last ones of a session that was lost.
    ahead = {body for body, sent in seen.sent.items() if plan.faultless or sent.outcome == "confirmed"}
    for watch in seen.watches:
        watch.out.update((body, count) for body, count in seen.left.items() if body.endswith(workers.OUTPUT))
        breaches += workers.breaches(watch, plan.like, seen.left, resent, ahead, faultless=plan.faultless)
    if seen.stored:
        order: dict[str, list[str]] = defaultdict(list)
        for sent in seen.sent.values():
            if sent.sender[0] == "o" and ">" not in sent.body:
                order[sent.sender].append(sent.body)
        put = {body for bodies in order.values() for body in bodies}
        own = [arrival for arrival in seen.arrivals if arrival.body in put]
        dead = {body for stored in seen.stored for body in stored.dead}
        breaches += outboxes.breaches(own, order, dead)
        breaches += [breach for stored in seen.stored for breach in stored.breaches]
    sent_by = {body: sent.sender for body, sent in seen.sent.items()}
    for spooled in seen.spooled:
        breaches += spooled.judged(plan.like, sent_by, resent, faultless=plan.faultless)
    return breaches


def _arrived(seen: Seen) -> set[str]:
    """Return the bodies of messages that were handled, are in the broker, or have an output that is."""
    arrived = {each.body for each in seen.handled} | {body for body, count in seen.left.items() if count}
    arrived |= {tried.body for watch in seen.watches for tried in watch.tried if tried.may_be_processed}
    arrived |= {row.body for spooled in seen.spooled for row in spooled.rows}
    sources = {body.partition(">")[0] for body in arrived if ">" in body}
    return {body for body in arrived if not body.endswith(workers.OUTPUT)} | sources


def _partial(seen: Seen, all_arrived: set[str]) -> Iterator[str]:
    """Yield the transactions that have taken effect in part (promise 9)."""
    blocks: dict[str, list[Sent]] = defaultdict(list)
    lossy = {each.queue for each in seen.plan.receivers if each.mode == "auto"}
    for sent in seen.sent.values():
        if sent.block is not None and sent.queue not in lossy:
            blocks[sent.block].append(sent)
    for name, block in blocks.items():
        arrived = [sent.body in all_arrived for sent in block]
        if len(set(arrived)) > 1 and seen.plan.like != "rabbitmq":
            yield f"the transaction {name} took effect in part: {arrived} (promise 9)"


def _dropped(seen: Seen) -> Iterator[str]:
    """Yield the messages that a consumer in mode `auto` had read, and that its program never got."""
    for number, consumer in enumerate(seen.plan.consumers):
        # Other styles stop when all is over, or have not begun to take messages then. Slower ones are not done before
        # the limit of `close`.
        takes_all = consumer.style in ("handler", "listener") and consumer.slow < 1.0
        if consumer.mode == "auto" and takes_all and not consumer.fails and consumer.killed_at is None:
            name = f"c{number}"
            handled = {each.body for each in seen.handled if each.consumer == name}
            for body in sorted(seen.owed[name] - handled):
                yield f"{body} was received by {name} in mode auto, and is lost"


def _out_of_order(seen: Seen) -> Iterator[str]:
    """Yield the senders whose messages a single consumer got in another order, although nothing broke."""
    if not seen.plan.faultless:
        return
    consumers = Counter(each.queue for each in seen.plan.receivers)
    for queue, count in consumers.items():
        beside = any(each.receives_twice for each in seen.plan.consumers)
        if count > 1 or beside or any(each.fails for each in seen.plan.receivers):
            continue
        order: dict[str, list[str]] = defaultdict(list)
        for each in seen.handled:
            if each.queue == queue:
                order[seen.sent[each.body].sender].append(each.body)
        position = {body: number for number, body in enumerate(seen.sent)}
        for sender, bodies in order.items():
            if bodies != sorted(bodies, key=lambda body: position[body]):
                yield f"messages of {sender} were handled as {bodies}"
