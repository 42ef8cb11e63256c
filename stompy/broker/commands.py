"""The effect of each command of a client. Runs on its session's reader, in a turn of the router.

Most producers send thousands of messages whose headers differ in a few lines at most. So the meaning of a SEND is
worked out once for the header lines that the broker reads (`SendPlan`), and remembered; all other lines are passed on
as they came. Every SEND takes this way.
"""

from __future__ import annotations

import functools
import logging
import re
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from stompy.broker import profile
from stompy.broker.destinations import TOPIC, Target, least_of, reply_target, targets_of
from stompy.broker.message import MessageHead, Route, StoredMessage, lines_named, passed_on, route_to
from stompy.broker.refusals import RefusedError
from stompy.broker.session_state import SessionState, SessionTransaction
from stompy.broker.users import Right, is_allowed
from stompy.errors import LimitExceededError, ProtocolError, RemoteProtocolError
from stompy.frames.encoder import encode, encode_lines
from stompy.frames.frame import Frame, Headers, headers_from_head, text_on_the_wire
from stompy.frames.grammar import Grammar, Version
from stompy.protocol.rules import Fault, FaultyFrame, Lookup, shown
from stompy.protocol.state import subscription_key, unknown_transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stompy.broker.router import BrokerRouter
    from stompy.broker.settings import Settings
    from stompy.frames.heads import Run, RunRow

_REMEMBERED = 4096
"""Plans that are remembered, those of all sessions."""
_LONGEST = 512
"""Bytes of the longest header lines whose plan is remembered, and characters of the longest destination."""
_RECEIPT = re.compile(rb"\nreceipt:([!-9;-\[\]-~]+)(?=\n)")
_UNESCAPED = re.compile(r"[!-9;-\[\]-~]+")
"""A receipt that is answered as it is, without escape sequences: in its line, and by itself."""
_PLAIN = b"RECEIPT\nreceipt-id:%b\n\n\0"
"""The answer to such a one."""
_QUEUE = re.compile(rb"\ndestination:(/queue/[\w.-]+)(?=\n|$)")
"""A queue whose name has no part that means something by itself to any broker."""
_TOGETHER = 64
"""SENDs with the same plan that are done together."""

_SCHEDULED = frozenset({"AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT"})
"""Headers that a scheduled message loses."""

_COMMIT = Frame("COMMIT")
"""In the place of the frame that is found wrong at COMMIT, as it gets no RECEIPT."""

_OBJECTS = 1024
"""About how many bytes a transaction takes, whatever its id."""


@dataclass(slots=True)
class SendPlan:
    """The meaning of a SEND with certain headers.

    Attributes:
        moment: the time in its heads, where the broker adds that; in milliseconds since the epoch.
        targets: where its messages go.
        routes: the same with the starts of their heads, one for each target.
        declares: the queue that it makes, where its session has not declared that.
        text: the body is text, in which invalid UTF-8 is replaced.
        unmade: without its queue the message is dropped.
        one_queue: it goes to one queue, which is no session's own and no pattern.
        transaction: the header of that name.
        owned: temporary destinations that come to be by it.
        personal: it may mean something else in another session.
        replaced: names of headers that the routes have in place of the sender's.
    """

    moment: int
    targets: tuple[Target, ...]
    routes: list[Route]
    declares: profile.Declaration | None
    text: bool
    unmade: bool
    one_queue: bool
    transaction: str | None = None
    owned: tuple[Target, ...] = ()
    personal: bool = False
    replaced: frozenset[str] = frozenset()
    _raw: bytes = field(default=b"", init=False)
    _lines: bytes = field(default=b"", init=False)
    _heads: Sequence[MessageHead] = field(default=(), init=False)

    @property
    def lasts(self) -> bool:
        """Whether another SEND with these headers, at another time or of another session, means the same."""
        options, single = self.routes[0].options, len(self.routes) == 1 and self.transaction is None
        return single and not self.personal and options.timeless and options.dedupe_id is None

    def to(self, target: Target, start: bytes | None) -> SendPlan:
        """Return the plan of a SEND that differs in its target alone; this one `lasts`, and has nothing `replaced`.

        Args:
            target: the other target.
            start: the start of its heads, where it is known.

        Raises:
            LocalProtocolError: its name cannot be written.
        """
        route = self.routes[0].to(target, start)
        plan = SendPlan(self.moment, (target,), [route], self.declares, self.text, self.unmade, self.one_queue)
        # Where nothing but its target differs, the same lines are passed on.
        plan._raw, plan._lines = self._raw.replace(b"\n" + self.routes[0].start, b"\n" + route.start), self._lines
        return plan

    def body(self, body: bytes) -> bytes:
        """Return a body as it is passed on."""
        return body.decode("utf-8", "replace").encode() if self.text else body

    def heads(self, raw: bytes, body: bytes, rules: profile.Profile) -> Sequence[MessageHead]:
        """Return the heads of its messages: those of the last SEND, if all that is passed on is the same.

        Raises:
            LocalProtocolError: a header cannot be written.
        """
        if raw != self._raw:
            lines = passed_on(raw, self.routes[0].grammar, rules, self.replaced)
            self._heads = self._heads if lines == self._lines else ()
            self._raw, self._lines = raw, lines
        if not self._heads or len(body) != self._heads[0].body_size:
            self._heads = [MessageHead(route, self._lines, len(body)) for route in self.routes]
        return self._heads


class Commands:
    """Turns the frames of a connected client into changes of the router's state.

    Args:
        router: whose lock is held around every call.
        settings: limits.
    """

    def __init__(self, router: BrokerRouter, settings: Settings) -> None:
        self._router = router
        self._settings = settings
        self._profile = settings.profile
        ways, self._asks = self._profile, profile.OWN.also_read | self._profile.also_read
        self._read = functools.lru_cache(1024)(lambda destination, session: targets_of(destination, session, ways))
        self._addresses: set[str] = set()
        """Those of the latest queues and topics, where a profile has such."""
        self._shows_receipts = "receipt" not in self._profile.dropped_headers
        self._meant = lines_named(self._asks | {"destination", "transaction", "content-length"})
        """The header lines that the plan of a SEND depends on; the others are only passed on."""
        self._plans: dict[bytes, SendPlan] = {}
        """By the header lines that are meant for the broker."""
        self._alike: dict[bytes, SendPlan] = {}
        """The latest that goes to a queue, by those lines without the destination."""
        self._latest: tuple[bytes, SendPlan | None] = b"", None
        """All header lines of the last SEND without its receipt, and its plan."""
        self._handlers: dict[str, Callable[[SessionState, Frame], None]] = {
            "SEND": self._send,
            "SUBSCRIBE": self._subscribe,
            "UNSUBSCRIBE": self._unsubscribe,
            "ACK": self._ack,
            "NACK": self._ack,
            "BEGIN": self._begin,
            "COMMIT": lambda session, frame: router.commit(session, _open_transaction(session, frame)),
            "ABORT": lambda session, frame: router.abort(session, _open_transaction(session, frame)),
            "DISCONNECT": lambda session, frame: router.detach(session),
        }

    def process(self, session: SessionState, frame: Frame) -> None:
        """Carry out a frame, then answer with a RECEIPT where it asks for that too (STOMP 1.2, RECEIPT).

        Args:
            session: whose frame it is; its protocol object has accepted the frame.
            frame: any but CONNECT.

        Raises:
            ProtocolError: it cannot be done, is not allowed, or would pass a limit; the session must be ended with an
                ERROR.
        """
        self._handlers[frame.command](session, frame)
        receipt = frame.headers.get("receipt")
        if receipt is not None or frame.command == "COMMIT":
            self._finish_later(functools.partial(self._finish, session, frame, receipt))

    def process_again(self, session: SessionState, run: Run, at: int) -> int:
        """Carry out a SEND of a run, and the next ones with the same plan, if it is remembered.

        The protocol object need not be asked: it admits a SEND without a transaction by its headers alone, and it has
        admitted the SEND that the plan was made for. Raises as `process` does, about the SEND at `at`.

        Args:
            session: the sender.
            run: checked frames.
            at: the place of the SEND.

        Returns:
            The place after the last SEND that was done; `at` if the plan is not remembered.
        """
        grammar, (head, _, body) = session.protocol.grammar, run.rows[at]
        raw, confirmation, plan = self._meaning(head, grammar)
        if not plan or plan.routes[0].grammar is not grammar or self._marks(session):
            return at
        if plan.moment and plan.moment != round(self._router.clock.now() * 1000):
            return at
        if done := self._publish_together(session, plan, raw, confirmation, run.rows[at : at + _TOGETHER]):
            return at + done
        self._publish(session, plan, raw, body)
        if confirmation is not None:
            self._finish_later(functools.partial(session.write_queue.answer, confirmation))
        return at + 1

    def _meaning(self, head: bytes, grammar: Grammar) -> tuple[bytes, bytes | None, SendPlan | None]:
        """Return the header lines of a SEND without its receipt, its RECEIPT, and its plan if one is known."""
        known, plan = self._latest
        bare = head == known or head.find(b"\nreceipt:") < 0
        raw, confirmation = (head, None) if bare else self._without_receipt(head, grammar)
        if raw != known:
            plan = self._plans.get(key := self._key(raw)) or self._plan_alike(key)
            if confirmation is None or raw is not head:
                self._latest = raw, plan
        return raw, confirmation, plan

    def _plan_alike(self, key: bytes) -> SendPlan | None:
        """Return the plan of a SEND to a queue, if that of one to another queue is remembered."""
        named = _QUEUE.search(key)
        rest = key if named is None else key[: named.start()] + key[named.end() :]
        if named is None or (alike := self._alike.get(rest)) is None:
            return None
        destination = named[1].decode()
        target = Target("queue", *self._profile.read_name(destination))
        if self._profile.addressed:
            target = self._addressed(target, "SEND", lambda name: None)
        # Its line came as it would be written, where subscribers see the same name.
        plan = alike.to(target, named[0][1:] + b"\n" if target.shown == destination else None)
        self._alike[rest] = plan
        if target.name in self._router.topology.queues:  # else it may be the only SEND to it
            self._remember(key, plan)
        return plan

    def _remember(self, key: bytes, plan: SendPlan) -> None:
        self._latest = b"", None
        if len(key) <= _LONGEST:
            if len(self._plans) >= _REMEMBERED:
                self._plans.clear()
            self._plans[key] = plan

    def _publish_together(
        self, session: SessionState, plan: SendPlan, raw: bytes, confirmation: bytes | None, rows: Sequence[RunRow]
    ) -> int:
        """Put messages with one plan into their queue at once; return how many, 0 if they must be looked at each.

        `raw` and `confirmation` are of the first one.

        Raises:
            LimitExceededError: there are too many queues.
        """
        router, route, user = self._router, plan.routes[0], session.user
        queue = router.topology.queues.get(route.target)
        undeclared = plan.declares is not None and route.target not in session.declared
        if undeclared or (user is not None and (queue is None or not is_allowed(user, "write", route.target))):
            return 0
        if queue is None and plan.one_queue and not plan.unmade:
            queue = router.topology.queue(route.target)
        if queue is None or not queue.takes_together:
            return 0
        contents: list[tuple[MessageHead, bytes]] = []
        confirmations, size, state, before, length = [], 0, 0, None, 0
        messages, room = queue.room()
        for lines, _, body in rows:
            if lines != before or len(body) != length:  # else all but the body is the same once more
                if contents:
                    raw, confirmation, found = self._meaning(lines, route.grammar)
                    if found is not plan:
                        break
                length, body = len(body), plan.body(body) if plan.text else body
                (head,) = plan.heads(raw, body, self._profile)
                before = None if plan.text or confirmation is not None else lines
            added = head.size + len(body)
            if size + added > room or len(contents) >= messages:
                break
            size, state = size + added, state + head.excess
            contents.append((head, body))
            if confirmation is not None:
                confirmations.append(confirmation)
        try:
            router.budget.take(size, state)
        except LimitExceededError:
            return 0
        stored = [StoredMessage(head, body, router.budget) for head, body in contents]
        router.publisher.append_all(queue, stored, size, self._sender(session))
        if confirmations:
            session.write_queue.answer(*confirmations)
        return len(contents)

    def _without_receipt(self, raw: bytes, grammar: Grammar) -> tuple[bytes, bytes]:
        """Return the header lines of a SEND without its receipt, unless that is passed on, and its RECEIPT."""
        start = raw.find(b"\nreceipt:")
        found = _RECEIPT.match(raw, start)
        if found is None:
            receipt = headers_from_head(raw, grammar, "SEND").get("receipt") or ""
            return raw, encode("RECEIPT", (("receipt-id", receipt),), grammar=grammar)
        bare = raw if self._shows_receipts else raw[:start] + raw[found.end() :]
        return bare, _PLAIN % found[1]

    def _key(self, raw: bytes) -> bytes:
        """Return the header lines that are meant for the broker, each from the line end before it."""
        return b"".join(self._meant.findall(raw))

    def _finish_later(self, finish: Callable[[], None]) -> None:
        """Call a function when all that the current frame asks for is done, which may be now."""
        unfinished = self._router.work.unfinished
        if unfinished.steps:
            unfinished.finish = finish
        else:
            finish()

    def _finish(self, session: SessionState, frame: Frame, receipt: str | None) -> None:
        if receipt is not None:
            self._confirm(session, frame, receipt)
        if session.late_receipts:
            session.write_queue.answer(*session.late_receipts)
            session.late_receipts.clear()
        if session.failure is not None:
            self._router.fail(session, session.failure, _COMMIT)

    def _confirm(self, session: SessionState, frame: Frame, receipt: str) -> None:
        grammar = session.protocol.grammar
        plain = _UNESCAPED.fullmatch(receipt) and not grammar.draft  # as the encoder would write it
        data = _PLAIN % receipt.encode() if plain else encode("RECEIPT", (("receipt-id", receipt),), grammar=grammar)
        late = self._profile.late_receipts and frame.command == "SEND"
        name = frame.headers.get("transaction") if late else None
        if name is not None and name in session.transactions:
            session.transactions[name].receipts.append(data)
        else:
            session.write_queue.answer(data)

    # SEND

    def _send(self, session: SessionState, frame: Frame) -> None:
        headers, grammar = frame.headers, session.protocol.grammar
        text = text_on_the_wire(headers)
        if text is None:
            raw = b"\n" + encode_lines("SEND", headers.pairs, grammar=grammar)
        else:
            raw = text.encode("utf-8", grammar.utf8_errors)
        if self._marks(session) and "transaction" not in headers:
            raw += b"__AMQ_CID:%b\n" % session.name.encode()
        key = self._key(raw)
        try:
            plan = self._plan(session, headers_from_head(key + b"\n", grammar, "SEND"))
        except FaultyFrame as error:
            name = headers.get("transaction")
            if name is None or error.fault not in self._profile.found_at_commit:
                raise
            transaction = self._open(session, name)
            transaction.failure = transaction.failure or error
            return
        self._publish(session, plan, raw, frame.body, confirmed="receipt" in headers)
        if plan.lasts:
            self._remember(key, plan)
            named = None if plan.replaced or len(key) > _LONGEST else _QUEUE.search(key)
            if named is not None and plan.one_queue and key.count(b"\ndestination:") == 1:
                if len(self._alike) >= _REMEMBERED:
                    self._alike.clear()
                self._alike[key[: named.start()] + key[named.end() :]] = plan

    def _publish(
        self, session: SessionState, plan: SendPlan, raw: bytes, body: bytes, *, confirmed: bool = False
    ) -> None:
        """Publish the messages of a SEND, or add them to its transaction."""
        router, budget, body = self._router, self._router.budget, plan.body(body)
        heads = plan.heads(raw, body, self._profile)
        if session.user is not None:
            self._check_rights(session, "write", plan.targets)
        for target in plan.owned:
            router.own(session, target)
        if plan.declares is not None and plan.targets[0].name not in session.declared:
            router.topology.declare(plan.targets[0].name, plan.declares, session)
        if plan.unmade and plan.targets[0].name not in router.topology.queues:
            return
        for head in heads:
            budget.take(head.size + len(body), head.excess)
            message = StoredMessage(head, body, budget)
            if plan.transaction is None:
                router.publisher.publish(message, self._sender(session))
            else:
                self._add(session, plan.transaction, message, confirmed=confirmed)

    def _marks(self, session: SessionState) -> bool:
        """Whether the messages of a session say whose they are: it has a subscription that leaves out its own."""
        return self._profile.addressed and any(one.options.no_local for one in session.consumers.values())

    def _sender(self, session: SessionState) -> str | None:
        """Return by which the subscriptions that leave out their own session's messages know its messages."""
        return session.name if not self._profile.addressed or self._marks(session) else None

    def _plan(self, session: SessionState, headers: Headers) -> SendPlan:
        """Make the plan of a SEND.

        Raises:
            RemoteProtocolError: the headers ask for a feature that the broker lacks, or the profile refuses them.
        """
        header, grammar, rules = headers.get, session.protocol.grammar, self._profile
        now, written, reply_to = self._router.clock.now(), set(headers), header("reply-to")
        targets, plain = self._targets(session, "SEND", header), self._asks.isdisjoint(written)
        if not plain:
            self._check_taken(session, "SEND", header)
        options = profile.PLAIN if plain else profile.send_options(header, now, self._profile)
        if any(target.pattern for target in targets) and not self._profile.sends_to_patterns:
            message = f"a message cannot be sent to a pattern, {shown(header('destination') or '')}"
            raise FaultyFrame(Fault.INVALID_DESTINATION, message)
        profile.check_routing("SEND", header, targets, self._profile)
        owned = tuple(target for target in targets if target.owner is not None)
        replaced: dict[str, str] = {}
        own = reply_target(reply_to, session.name) if reply_to and rules.temporary != "shared" else None
        if own is not None:
            owned += (own,)
            replaced["reply-to"] = rules.reply_name(own.name)
        elif reply_to is not None and (name := rules.reply_to(reply_to)) != reply_to:
            replaced["reply-to"] = name
        if rules.own_length and header("content-length") == "0":
            replaced["content-length"] = "0"
        if len(targets) > 1:
            first, *others = (target.shown for target in targets)
            replaced["original-destination"] = ",".join([first, *map(rules.original_part, others)])
        unsaid = rules.addressed and _is_plain(targets[0].shown) and not header(profile.ROUTING["SEND"])
        kind = "" if unsaid else targets[0].kind
        added = () if rules.added_headers is None else rules.added_headers(options, kind, now)
        counted = "content-length" in written or header("amq-msg-type") == "bytes"
        routes = [
            route_to(
                target.shown,
                grammar,
                target=target.name,
                options=options,
                length=counted or not rules.own_length,
                own_length=rules.own_length,
                first=replaced.items(),
                last=[pair for pair in added if pair[0] not in written - rules.dropped_headers - rules.doubled_headers],
            )
            for target in targets
        ]
        declares = self._profile.declares(header)
        return SendPlan(
            0 if rules.added_headers is None else round(now * 1000),
            targets,
            routes,
            declares=None if targets[0].kind == "topic" or targets[0].owner is not None else declares,
            text=rules.text_bodies and not counted,
            unmade=rules.must_exist(header("destination") or ""),
            one_queue=len(targets) == 1 and targets[0].kind == "queue" and not (targets[0].owner or targets[0].pattern),
            transaction=header("transaction"),
            owned=owned,
            personal=bool(owned) or unsaid or "user-id" in self._asks & written,
            replaced=_SCHEDULED.union(replaced) if options.due and rules is not profile.OWN else frozenset(replaced),
        )

    def _check_taken(self, session: SessionState, command: str, header: Lookup) -> None:
        """Raise an error for a frame that the embedded broker would take, and the profile refuses."""
        refusal = self._profile.refuses(self._profile, command, header, session)
        if refusal is not None:
            raise RefusedError(refusal)

    def _add(self, session: SessionState, name: str, message: StoredMessage, *, confirmed: bool) -> None:
        """Add a message to a transaction."""
        publisher, rules, options = self._router.publisher, self._profile, message.options
        if rules.implied_begin and name not in session.transactions:
            self._open_new(session, name)
            session.transactions[name].implied = True
        transaction = self._open(session, name, adding=message.size)
        try:
            if options.due is None:
                publisher.check_owner(message.target)
        except RemoteProtocolError:
            if rules.rollback_only and not confirmed:
                transaction.spoiled = "COMMIT FAILED: Transaction marked rollback only xaErrorCode:100"
            raise
        transaction.send(message)
        if options.dedupe_id is not None and publisher.has_seen(message.target, options.dedupe_id):
            transaction.spoiled = "a message of the transaction is a duplicate: it has the id of an earlier one"

    # Destinations

    def _targets(self, session: SessionState, command: str, header: Lookup) -> tuple[Target, ...]:
        """Return the destinations of a frame.

        Raises:
            RemoteProtocolError: the header is empty, or malformed.
        """
        destination = header("destination")
        if not destination and (destination is None or not self._profile.addressed):
            message = f"a {command} frame needs a destination that is not empty"
            raise FaultyFrame(Fault.EMPTY_DESTINATION, message)
        found = (self._read if len(destination) <= _LONGEST else self._read.__wrapped__)(destination, session.name)
        return (self._addressed(found[0], command, header),) if self._profile.addressed else found

    def _addressed(self, target: Target, command: str, header: Lookup) -> Target:
        """Return the queue or the topic of an address, as its routing type says; no topic where there is a queue."""
        kind, rest = target.kind, target.name[len(TOPIC) :]
        kind = profile.KINDS_ROUTED.get(header(profile.ROUTING[command]) or "", kind)
        if not rest and (kind == "queue" or command == "SUBSCRIBE"):
            fault = Fault.EMPTY_DESTINATION if kind == "queue" else Fault.INVALID_DESTINATION
            raise FaultyFrame(fault, f"a {command} frame needs a destination that is not empty")
        is_queue = f"/queue/{rest}" in self._addresses and (command == "SUBSCRIBE" or _is_plain(target.shown))
        if len(self._addresses) >= _REMEMBERED:
            self._addresses.clear()
        self._addresses.add(f"/{kind}/{rest}")
        kind = "queue" if is_queue else kind
        return target if kind == target.kind else target._replace(kind=kind, name=f"/{kind}/{rest}")

    def _check_rights(self, session: SessionState, right: Right, targets: tuple[Target, ...]) -> None:
        """Check that the user may use destinations so.

        Raises:
            RemoteProtocolError: access is refused.
        """
        for target in targets:
            name = target.name if target.owner is None else target.shown
            asked: list[tuple[Right, str]] = [(right, name)]
            if target.pattern:
                asked.append((right, least_of(name)))
            if not self._router.topology.exists(target):
                asked.append(("admin", name))
            for wanted, name in asked:
                if session.user is not None and not is_allowed(session.user, wanted, name):
                    denied, text = self._profile.denied, f"access refused: no right to {wanted} {shown(name)}"
                    text = denied(wanted, name, session.login) if denied else text
                    raise FaultyFrame(Fault.ACCESS_REFUSED, text)

    # The other commands

    def _subscribe(self, session: SessionState, frame: Frame) -> None:
        header = frame.headers.get
        if len(session.consumers) >= self._settings.max_session_subscriptions:
            raise self._settings.exceeded("max_session_subscriptions", "too many subscriptions in one session")
        targets, key = self._targets(session, "SUBSCRIBE", header), subscription_key(header)
        if self._profile.first_kind:
            targets = tuple(target for target in targets if target.kind == targets[0].kind)
        # A missing id that the profile takes was all that the protocol found.
        if key in session.consumers and ("SUBSCRIBE", Fault.SUBSCRIPTION_EXISTS) not in self._profile.takes:
            raise FaultyFrame(Fault.SUBSCRIPTION_EXISTS, f"there is a subscription {shown(key)} already")
        self._check_taken(session, "SUBSCRIBE", header)
        options = profile.subscribe_options(header, prefetch=self._settings.prefetch, profile=self._profile)
        if self._profile.addressed and targets[0].kind == "queue":
            options = replace(options, durable=None)
        self._check_rights(session, "read", targets)
        profile.check_combination(options, targets, self._profile)
        profile.check_routing("SUBSCRIBE", header, targets, self._profile)
        destination = header("destination") or ""
        if self._profile.must_exist(destination) and targets[0].name not in self._router.topology.queues:
            missing = f"NOT_FOUND - no queue '{targets[0].name.removeprefix('/queue/')}' in vhost '/'"
            raise FaultyFrame(Fault.UNKNOWN_EXCHANGE, missing)
        identity = header("id") if "id" in frame.headers else self._profile.implied_id(destination)
        if self._profile.addressed and any(one.identity == identity for one in session.consumers.values()):
            raise FaultyFrame(Fault.SUBSCRIPTION_EXISTS, f"there is a subscription {shown(key)} already")
        for target in targets:
            if target.owner not in (None, session.name):
                raise FaultyFrame(Fault.LOCKED, "a temporary destination belongs to another session")
            self._router.own(session, target)
        if options.prefetch <= 0:
            text = f"a subscription to {shown(destination)} gets nothing, as its prefetch is 0 or less"
            self._router.work.note(logging.WARNING, text)
        self._router.subscribe(
            session, key, targets=targets, destination=destination, identity=identity, options=options
        )

    def _unsubscribe(self, session: SessionState, frame: Frame) -> None:
        header = frame.headers.get
        consumer = session.consumers.get(subscription_key(header))
        name = profile.durable_name(self._profile.translate("SUBSCRIBE", header))
        if consumer is None and header("id") is None:  # one with an id, where the profile takes that
            implied = self._profile.implied_id(header("destination") or "")
            asked, consumers = implied or header("destination"), session.consumers.values()
            alike = [one for one in consumers if (one.identity if implied else one.destination) == asked]
            consumer = alike[0] if alike else None
        if consumer is not None and not (name and self._profile.durable_alone):
            lasts = {header("durable"), header("persistent")}
            self._router.unsubscribe(consumer, delete=not lasts.isdisjoint({"true", "True"}))
        elif name is None:
            raise FaultyFrame(Fault.UNKNOWN_SUBSCRIPTION, "there is no such subscription (UNSUBSCRIBE)")
        if name is not None:
            named = self._profile.durable_alone and session.protocol.version is Version.V1_0
            taken = ("UNSUBSCRIBE", Fault.UNKNOWN_DURABLE) in self._profile.takes
            try:
                self._router.topology.delete_durable(name if named else session.client_id, name)
            except FaultyFrame:
                if not taken or (consumer is None and session.client_id is None):
                    raise

    def _ack(self, session: SessionState, frame: Frame) -> None:
        header, rules, version = frame.headers.get, self._profile, session.protocol.version
        token = rules.token_of(header("id" if version is Version.V1_2 else "message-id") or "")
        refused, named = frame.command == "NACK", header("subscription")
        concerned = session.consumers if named is None else f"#{named}" in session.consumers
        if version is not Version.V1_2 and header("id") is None and concerned and rules.unreadable_token(token):
            raise FaultyFrame(Fault.UNREADABLE_ID, f"{shown(token)} is no id of a message")
        name = header("transaction")
        named_delivery = session.ledger.find(token)
        if name is not None and frame.command in rules.refused_in_transaction:
            raise FaultyFrame(Fault.NOT_TRANSACTED, rules.refused_in_transaction[frame.command].format(id=token))
        if named_delivery.item.consumer.over:
            raise FaultyFrame(Fault.SUBSCRIPTION_ENDED, "the subscription of this message has ended (ACK)")
        entries = session.take(
            token,
            subscription=None if rules.ack_of_connection or version in rules.id_alone else named,
            alone=refused and rules.nack == "dead letter",
            whole=rules.ack_of_connection,
        )
        if name is None or frame.command not in rules.waits_for_commit:
            requeue = not refused or (header("requeue") or "").lower() != "false"
            self._router.settle(entries, refused=refused, requeue=requeue)
            return
        try:
            self._open(session, name).settle(entries, refused=refused)
        except ProtocolError:
            session.ledger.restore(entries)
            raise
        for consumer in {entry.item.consumer for entry in entries}:
            self._router.freed(consumer)

    def _begin(self, session: SessionState, frame: Frame) -> None:
        name = _transaction(frame)
        if name not in session.transactions:  # it is only where the profile takes that
            self._open_new(session, name)
        elif self._profile.implied_begin and not session.transactions[name].implied:
            raise FaultyFrame(Fault.TRANSACTION_EXISTS, f"transaction {shown(name)} is open already (BEGIN)")
        session.transactions[name].implied = False

    def _open_new(self, session: SessionState, name: str) -> None:
        if len(session.transactions) >= self._settings.max_session_transactions:
            raise self._settings.exceeded("max_session_transactions", "too many open transactions in one session")
        kept = 3 * sys.getsizeof(name) + _OBJECTS  # here, in the protocol object, and what reading it leaves of holes
        session.budget.take(kept)
        session.transactions[name] = SessionTransaction(kept)

    def _open(self, session: SessionState, name: str, *, adding: int = 0) -> SessionTransaction:
        """Return an open transaction that may take one more frame, with `adding` bytes."""
        transactions = session.transactions.values()
        self._router.work.left -= len(transactions) // 16
        frames = sum(transaction.frames for transaction in transactions)
        size = sum(transaction.size for transaction in transactions)
        settings, what = self._settings, f"transaction {name[:80]!r} is too large"
        if frames >= settings.max_transaction_frames:
            raise settings.exceeded("max_transaction_frames", what)
        if size + adding > settings.max_transaction_bytes:
            raise settings.exceeded("max_transaction_bytes", what)
        if name not in session.transactions:
            raise unknown_transaction(name, "SEND")
        return session.transactions[name]


def _open_transaction(session: SessionState, frame: Frame) -> str:
    """Return the transaction to end; a SEND that was to begin it may have been refused.

    Raises:
        RemoteProtocolError: it is not open.
    """
    name = _transaction(frame)
    if name not in session.transactions or session.transactions[name].implied:
        raise unknown_transaction(name, frame.command)
    return name


def _transaction(frame: Frame) -> str:
    return frame.headers.get("transaction") or ""


def _is_plain(name: str) -> bool:
    """Whether a name does not say if it is a queue or a topic."""
    return not name.startswith(("/queue/", TOPIC))
